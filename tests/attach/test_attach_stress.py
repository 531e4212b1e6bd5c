"""Attaching again and again, at random moments, to a process busy with everything harms nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import probing
from probing.attach.attach import attach
from probing.attach.injectors import methods
from probing.attach.injectors.layouts import LAYOUTS
from probing.attach.injectors.names import AUTO, PENDING, THREAD
from probing.errors import AttachFailed, AttachRefused
from tests.attach.test_injection_pending import pythons_at_hand
from tests.harness.targets import Target, program_path, wait_until

PROGRAM = program_path("busy_everywhere")
HOWS = (THREAD, PENDING, AUTO) if sys.version_info[:2] <= max(LAYOUTS) else (THREAD, AUTO)
SEED = 3
LONGEST_PAUSE_S = 0.05
PATIENCE_S = 120.0
"""The processor is shared by some fifteen threads, and perhaps by other tests."""
MORE_THREADS, MORE_FDS, MORE_MAPS = 2, 4, 60
"""The program's own come and go; so do the C library's arenas."""
SCRIPT = """
import os
if os.getpid() == {pid}:  # and not a child that was forked before the code ran
    os.unlink({script!r})
    open({mark!r}, "w").close()
"""


def short_and_full(few: int, many: int) -> pytest.MarkDecorator:
    """Run a test for a few rounds, and with `-m nightly` for many."""
    full = pytest.param(many, marks=pytest.mark.nightly)
    return pytest.mark.parametrize("rounds", [few, full], ids=["short", "full"])


class Resources(NamedTuple):
    """What a process holds."""

    threads: int
    fds: int
    maps: int
    resident_kib: int


class Tally:
    """What came of the tries of each way.

    Attributes:
        held_s: How long threads stood still, by the way that was asked for.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._refused: dict[str, Counter[str]] = {}
        self._seconds: dict[str, list[float]] = {}
        self.held_s: dict[str, list[float]] = {}

    def attached(self, how: str, seconds: float, held_s: float) -> None:
        """One more try has worked."""
        self._seconds.setdefault(how, []).append(seconds)
        self.held_s.setdefault(how, []).append(held_s)

    def refused(self, how: str, reason: str) -> None:
        """One more try was refused."""
        self._refused.setdefault(how, Counter())[reason] += 1

    def report(self) -> str:
        """The figures, for the pages that tell them."""
        lines = [f"{self._who}, seed {SEED}"]
        for how in sorted({*self.held_s, *self._refused}):
            held, refused = self.held_s.get(how, []), self._refused.get(how, Counter())
            line = f"  {how}: {len(held) + refused.total()} tries, {len(held)} ran"
            if held:
                line += (
                    f", held {1e3 * statistics.median(held):.2f} ms, at most {1e3 * max(held):.2f}"
                    f"; took {statistics.median(self._seconds[how]):.2f} s, at most"
                    f" {max(self._seconds[how]):.2f}"
                )
            lines.append(line)
            lines += [f"    refused {count}: {reason}" for reason, count in refused.most_common()]
        return "\n".join(lines)


class Busy(Target):
    """The program, ready and with all of its workers busy.

    Attributes:
        names: Its workers, in the order of their counters.
    """

    def __init__(self, kind: str, home: Path, cwd: Path, python: str = sys.executable) -> None:
        self._argv = [python, str(PROGRAM), kind]
        super().__init__(self._argv, home, cwd, OPENBLAS_NUM_THREADS="1")
        self.wait_for_output("ready", PATIENCE_S)
        wait_until(lambda: "\n" in self.output.partition("ready")[2], "the names")
        self.names = tuple(self.output.partition("ready")[2].split("\n", 1)[0].split())
        self._anonymous_code = self._count_anonymous_code()
        self.wait_all_go_on()

    def counters(self) -> tuple[int, ...]:
        """How often each worker came round."""
        return struct.unpack(f"={len(self.names)}Q", (self.cwd / "counters").read_bytes())

    def wait_all_go_on(self) -> None:
        """Wait until every worker has come round again."""
        before = self.counters()

        def idle() -> list[str]:
            code = self.process.poll()
            assert code is None, f"it ended with {code}: {self.output}"
            now = zip(self.names, before, self.counters(), strict=True)
            return [name for name, old, new in now if new == old]

        end = time.monotonic() + PATIENCE_S
        while names := idle():
            assert time.monotonic() < end, f"these workers hang: {names}; {self._stacks()}"
            time.sleep(0.01)

    def resources(self) -> Resources:
        """The least that it holds over a while: its own workers come and go."""
        samples = []
        for _ in range(40):
            samples.append(self._sample())
            time.sleep(0.005)
        return Resources(*map(min, zip(*samples, strict=True)))

    def check_nothing_is_left(self) -> None:
        """No mapping of ours is left: neither code nor files of the run folder."""
        folder = str(self.home)
        maps = Path(f"/proc/{self.pid}/maps")
        wait_until(lambda: folder not in maps.read_text(), "our files to be unmapped")
        wait_until(
            lambda: self._count_anonymous_code() <= self._anonymous_code, "our code to be gone"
        )

    def end_cleanly(self) -> None:
        """End it by the signal that it handles, and compare its steps with those of another run."""
        assert self.kill(signal.SIGTERM) == 0, self.output
        assert self.output.splitlines()[1:] == ["done"]
        steps = (self.cwd / "steps").read_text()
        alone = self.cwd / "alone"
        alone.mkdir()
        argv = [*self._argv, "--alone", str(steps.count("\n"))]
        subprocess.run(argv, cwd=alone, env=self.env, check=True)
        assert (alone / "steps").read_text() == steps

    def _sample(self) -> Resources:
        root = Path(f"/proc/{self.pid}")
        status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
        return Resources(
            threads=len(os.listdir(root / "task")),
            fds=len(os.listdir(root / "fd")),
            maps=(root / "maps").read_text().count("\n"),
            resident_kib=int(status["VmRSS"].split()[0]),
        )

    def _count_anonymous_code(self) -> int:
        """How many mappings of code came from no file; libffi makes some, too."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return sum("x" in line.split()[1] and len(line.split()) == 5 for line in lines)

    def _stacks(self) -> str:
        """Where its threads are, for a test that fails."""
        with contextlib.suppress(probing.ProbingError):
            trace = probing.connect(self.pid).backtrace()
            return f"{trace}\n{self.output}"
        return self.output


@pytest.fixture
def start(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Busy]]:
    """Starts the busy program in folders of short names, since a queued call has little room."""
    targets: list[Busy] = []

    def begin(kind: str, python: str = sys.executable) -> Busy:
        folder = tmp_path_factory.mktemp("b")
        monkeypatch.setenv("PROBING_HOME", str(folder / "h"))
        targets.append(Busy(kind, folder / "h", folder, python))
        return targets[-1]

    yield begin
    for target in targets:
        target.reap()


def stress(target: Busy, rounds: int) -> None:
    """Attach and detach at random moments, by each way in turn, and look for harm after each."""
    draw, tally = random.Random(SEED), Tally(f"Python {sys.version.split()[0]}, {target.names}")
    settled: Resources | None = None
    for number in range(rounds):
        time.sleep(draw.uniform(0, LONGEST_PAUSE_S))
        how = HOWS[number % len(HOWS)]
        try:
            attached = attach(target.pid, how=how, timeout_s=PATIENCE_S)
        except (AttachFailed, AttachRefused) as error:
            tally.refused(how, error.message)
            target.wait_all_go_on()
        else:
            assert how in (attached.method, AUTO)
            tally.attached(how, attached.seconds, attached.held_s)
            target.wait_all_go_on()
            time.sleep(draw.uniform(0, LONGEST_PAUSE_S))
            probing.connect(target.pid, timeout_s=PATIENCE_S).detach()
            wait_until(lambda: not list(target.home.glob(f"{target.pid}-*")), "the agent to leave")
            target.wait_all_go_on()
        target.check_nothing_is_left()
        if number == len(HOWS) - 1:  # the libraries that stay are loaded now
            settled = target.resources()
    final = target.resources()
    print(tally.report(), f"  settled: {settled}", f"  at the end: {final}", sep="\n")
    assert settled is not None
    assert sum(map(len, tally.held_s.values())) >= rounds / 2
    assert final.threads <= settled.threads + MORE_THREADS
    assert final.fds <= settled.fds + MORE_FDS
    assert final.maps <= settled.maps + MORE_MAPS
    target.end_cleanly()


@pytest.mark.torch
@pytest.mark.slow
@short_and_full(4, 100)
def test_a_training_among_everything_else_never_notices(
    start: Callable[..., Busy], rounds: int
) -> None:
    """After every attach and detach all of its threads go on; its losses are bit-identical."""
    stress(start("torch"), rounds)


@pytest.mark.anypython
@pytest.mark.slow
@short_and_full(4, 300)
def test_a_process_busy_with_everything_never_notices(
    start: Callable[..., Busy], rounds: int
) -> None:
    """The same without torch, on every Python."""
    stress(start("bare"), rounds)


@pytest.mark.slow
@short_and_full(2, 100)
@pytest.mark.parametrize("version", LAYOUTS, ids=lambda version: ".".join(map(str, version)))
@pytest.mark.parametrize("how", [THREAD, PENDING])
def test_code_gets_into_every_python_at_hand(
    start: Callable[..., Busy], tmp_path: Path, version: tuple[int, int], how: str, rounds: int
) -> None:
    """The same with nothing but the injection, whatever Python the other process runs."""
    python = pythons_at_hand().get(version)
    if python is None:
        pytest.skip("this Python is not here")
    target = start("bare", python)
    draw, tally = random.Random(SEED), Tally(f"{python}, {target.names}")
    settled = target.resources()
    script = target.cwd / "s"
    for number in range(rounds):
        time.sleep(draw.uniform(0, LONGEST_PAUSE_S))
        mark = tmp_path / str(number)
        script.write_text(SCRIPT.format(pid=target.pid, script=str(script), mark=str(mark)))
        began = time.monotonic()
        outcome = methods.inject(target.pid, str(script), how=how, patience_s=PATIENCE_S)
        if outcome.method is None:
            script.unlink()
            tally.refused(how, str(dict(outcome.attempts)[how]))
        else:
            assert outcome.has_run
            tally.attached(how, time.monotonic() - began, outcome.held_s)
            wait_until(mark.exists, "the code to have run")
        target.wait_all_go_on()
        target.check_nothing_is_left()
    final = target.resources()
    print(tally.report(), f"  settled: {settled}", f"  at the end: {final}", sep="\n")
    assert len(tally.held_s[how]) >= rounds / 2
    assert final.threads <= settled.threads + MORE_THREADS
    assert final.fds <= settled.fds + MORE_FDS
    assert final.maps <= settled.maps + MORE_MAPS
    target.end_cleanly()
