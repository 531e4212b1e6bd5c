"""When a training is proven to stand still inside of torch."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from probing.agent.recording import stillness
from probing.agent.recording.no_training import NoTraining
from probing.agent.recording.safe_points import AGENT_THREAD_PREFIX
from probing.agent.recording.stillness import Stillness
from probing.linux import process
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


class Scene:
    """A process inside of torch, with a clock and processor times as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cpu: dict[int, float]) -> None:
        self.now, self.cpu = 100.0, cpu
        self.ready_s: float | None = 0.0
        self.state, self.sleeps = "S", 7
        self.stillness = Stillness(NoTraining())
        monkeypatch.setattr(stillness, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(stillness, "threads_in_torch", lambda: [threading.main_thread()])

        def threads(_pid: int) -> dict[int, SimpleNamespace]:
            facts = {"state": self.state, "switches": self.sleeps, "ready_s": self.ready_s}
            return {
                number: SimpleNamespace(cpu_s=cpu_s, **facts) for number, cpu_s in self.cpu.items()
            }

        monkeypatch.setattr(process, "threads", threads)

    def proven_after(self, polls: int, *, busy: float = 0.0, waits: float = 0.0) -> int | None:
        """The first of so many looks, one each 0.1 s, that finds it proven.

        Args:
            busy: How long a thread uses a processor between two of them.
            waits: How long it waits for one.
        """
        for number in range(polls):
            if self.stillness.is_proven():
                return number
            self.now += 0.1
            self.cpu[1] += busy
            if self.ready_s is not None:
                self.ready_s += waits
        return None


def test_a_process_that_uses_no_processor_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a second, each time that it is looked at."""
    assert Scene(monkeypatch, {1: 5.0, 2: 8.0}).proven_after(20) in (10, 11)


def test_a_thread_that_ends_hides_no_work_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own processor time goes with it, and would outweigh what the other one uses."""
    scene = Scene(monkeypatch, {1: 5.0, 2: 8.0})
    assert not scene.stillness.is_proven()
    del scene.cpu[2]
    assert scene.proven_after(25, busy=0.2) is None


def test_a_process_that_was_stopped_is_not_proven_to_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by SIGSTOP: the look comes late, and all begins again."""
    scene = Scene(monkeypatch, {1: 5.0})
    assert scene.proven_after(3) is None
    scene.now += 2.0
    assert scene.proven_after(20) in (10, 11)


def test_a_thread_that_waits_for_a_processor_is_not_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts such waits; one that wakes up now and then has short ones."""
    scene = Scene(monkeypatch, {1: 5.0})
    assert scene.proven_after(40, waits=0.09) is None
    assert scene.proven_after(20, waits=0.005) in (10, 11)


def test_a_thread_that_never_gets_a_processor_is_not_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its wait is counted only once it is over, but it is ready all the time."""
    scene = Scene(monkeypatch, {1: 5.0})
    scene.state = "R"
    assert scene.proven_after(40) is None
    scene.state = "S"
    assert scene.proven_after(20) in (10, 11)


def test_without_counts_of_waits_processor_time_alone_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on kernels that have no such file."""
    scene = Scene(monkeypatch, {1: 5.0})
    scene.ready_s = None
    assert scene.proven_after(20, waits=0.09) in (10, 11)


class OfThread(NoTraining):
    """A training whose thread has the number 1."""

    def thread_id(self) -> int:
        """It."""
        return 1


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A training outside of torch."""
    scene = Scene(monkeypatch, {1: 5.0, 2: 8.0})
    scene.stillness = Stillness(OfThread())
    monkeypatch.setattr(stillness, "threads_in_torch", list)
    return scene


def test_a_script_outside_of_torch_stands_still_once_it_could_go_on(outside: Scene) -> None:
    """For a moment, asleep or busy with something else: it may have been off, and be about to."""
    assert outside.proven_after(20) in (1, 2)
    outside.now += 2.0
    outside.state = "R"
    assert outside.proven_after(20, busy=0.1) in (1, 2)


def test_a_script_outside_of_torch_that_gets_no_processor_proves_nothing(outside: Scene) -> None:
    """Whether its wait is counted already or not; one that gets a little has its turn in time."""
    assert outside.proven_after(40, waits=0.1) is None
    outside.state = "R"
    assert outside.proven_after(40) is None
    outside.now += 2.0
    assert outside.proven_after(20, busy=0.02) in (5, 6)


def test_who_comes_into_torch_is_looked_at_anew(
    outside: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it stood still outside of it is no proof."""
    assert outside.proven_after(20) is not None
    monkeypatch.setattr(stillness, "threads_in_torch", lambda: [threading.main_thread()])
    assert outside.proven_after(20) in (10, 11)


def test_where_nobody_trains_nothing_is_waited_for(outside: Scene) -> None:
    """As before torch has been imported."""
    outside.stillness = Stillness(NoTraining())
    assert outside.proven_after(1) == 0


LOAD_S = 3.0
BUSY = "print('ready', flush=True)\nwhile True: pass"


@pytest.fixture
def starved() -> Iterator[tuple[threading.Thread, subprocess.Popen[str]]]:
    """A thread with a second's work that has to wait for a processor, and who has that."""
    processor = {max(os.sched_getaffinity(0))}
    thread = threading.Thread(
        target=hashlib.pbkdf2_hmac, args=("sha256", b"word", b"salt", 3_000_000)
    )
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as busy:
        try:
            os.sched_setaffinity(busy.pid, processor)
            assert busy.stdout is not None
            assert busy.stdout.readline() == "ready\n"
            thread.start()  # only now: what takes long to start would leave it all the time
            number = thread.native_id or 0
            os.sched_setaffinity(number, processor)
            os.sched_setscheduler(number, os.SCHED_IDLE, os.sched_param(0))
            yield thread, busy
        finally:
            busy.kill()
    thread.join()


@pytest.mark.slow
def test_a_thread_beside_heavy_load_works(
    starved: tuple[threading.Thread, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hardly gets any processor time for seconds, and is no proof; once it is through it is."""
    thread, busy = starved
    monkeypatch.setattr(stillness, "threads_in_torch", lambda: [threading.main_thread()])
    if process.threads(os.getpid())[thread.native_id or 0].ready_s is None:
        pytest.skip("this kernel does not count waits for a processor")
    found: dict[bool, list[bool]] = {True: [], False: []}

    def look() -> None:
        looked, pause, begin = Stillness(NoTraining()), threading.Event(), time.monotonic()
        for has_load, limit_s in ((True, LOAD_S), (False, DEADLINE_S)):
            while time.monotonic() < begin + limit_s and True not in found[False]:
                found[has_load].append(looked.is_proven())
                pause.wait(0.05)
            busy.kill()
            with contextlib.suppress(ProcessLookupError):  # it is through
                os.sched_setscheduler(thread.native_id or 0, os.SCHED_OTHER, os.sched_param(0))

    looking = threading.Thread(target=look, name=f"{AGENT_THREAD_PREFIX}test")
    looking.start()
    looking.join()
    assert True not in found[True]
    assert found[False][-1]
    assert not thread.is_alive()
