"""Kills whoever injects, again and again, at every step of the way, and looks for harm.

    python -m tests.attach.kills --kills 1000 [--python PYTHON ...]

Rules of this file: each injection is made by a child of its own, which ends itself by SIGKILL at
one of its calls of ptrace, before it or behind it or a moment later. Then the process must go on in
all of its threads, with right answers and no signal blocked, and an injection that nobody disturbs
must work. Prints what came of it; fails at the first harm.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.attach.injectors import thread
from probing.attach.injectors.borrowing import victims
from probing.attach.injectors.borrowing.memory import find_interpreter
from probing.attach.injectors.borrowing.tracing import TracedThread
from probing.attach.injectors.refusal import CannotInject
from tests.harness.targets import clean_env, program_path, wait_until

SEED = 16
MOST_CALLS = 45
"""About as many as there are in one injection, the writing of the instructions left aside."""
LONGEST_DELAY_S = 0.002
WAYS = ("before", "behind", "later")
SENT, BACK = 0x4205, 17
"""The calls of ptrace that set a thread's registers and that let it go."""


class Waits:
    """The program whose threads wait in all the ways in which they can be borrowed."""

    def __init__(self, python: str, cwd: Path) -> None:
        self._cwd = cwd
        self.log = cwd / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-I", str(program_path("waits"))],
                cwd=cwd,
                env=clean_env(cwd),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self.process.pid
        wait_until(lambda: self.is_alive() and self.log.read_text().endswith("\n"), "ready")
        self.names = self.log.read_text().split()[1:]
        self.wait_all_go_on()

    def is_alive(self) -> bool:
        """Fail if it has ended."""
        code = self.process.poll()
        assert code is None, f"it ended with {code}: {self.log.read_text()}"
        return True

    def wait_all_go_on(self) -> None:
        """Wait until each thread has made two calls more: the one that it was in, and another."""
        before = self._counters()

        def done() -> bool:
            now = self._counters()
            return self.is_alive() and all(b >= a + 2 for a, b in zip(before, now, strict=True))

        wait_until(done, f"all of {self.names} to go on from {before}")

    def maps(self) -> int:
        """How many mappings it has."""
        return Path(f"/proc/{self.pid}/maps").read_text().count("\n")

    def _counters(self) -> tuple[int, ...]:
        data = (self._cwd / "counters").read_bytes()
        return struct.unpack(f"={len(data) // 8}Q", data)


@contextlib.contextmanager
def waiting(python: str) -> Iterator[Waits]:
    """The program, running."""
    with tempfile.TemporaryDirectory() as folder:
        target = Waits(python, Path(folder))
        try:
            yield target
        finally:
            target.process.kill()
            target.process.wait()


def kill_again_and_again(python: str, kills: int) -> Counter[str]:
    """Have that many injections killed in one process; returns what became of them."""
    draw = random.Random(SEED)
    tally: Counter[str] = Counter()
    with waiting(python) as target:
        as_soon_as_possible(lambda: inject(target, draw))
        target.wait_all_go_on()
        before = target.maps()
        while tally["killed"] + tally["killed, a thread on its way"] < kills:
            way, at = draw.choice(WAYS), draw.randrange(1, MOST_CALLS)
            delay_s = draw.random() * LONGEST_DELAY_S if way == "later" else 0.0
            tally[injected_and_killed(target, draw, way, at, delay_s)] += 1
            target.wait_all_go_on()
        as_soon_as_possible(lambda: inject(target, draw))
        target.wait_all_go_on()
        tally["mappings more"] = target.maps() - before
    return tally


def as_soon_as_possible(inject: Callable[[], None]) -> None:
    """Inject once one of the threads stays where it waits, and can be borrowed."""

    def is_done() -> bool:
        try:
            inject()
        except CannotInject as refusal:
            if "can be borrowed from" not in refusal.reason:
                raise
            return False
        return True

    wait_until(is_done, "a thread that can be borrowed")


def inject(target: Waits, draw: random.Random) -> None:
    """Inject by any of the threads that can be borrowed."""

    def shuffled(*given: Any) -> list[int]:
        found = victims.choose(*given)
        draw.shuffle(found)
        return found

    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(find_interpreter(target.pid)) as interpreter,
    ):
        patch.setattr(thread, "choose", shuffled)
        thread.inject(interpreter, "pass\n", timeout_s=60)


def injected_and_killed(
    target: Waits, draw: random.Random, way: str, at: int, delay_s: float
) -> str:
    """Have a child inject and be killed at its call of ptrace with that number."""
    draw.random()  # the child's choices are to be others each time
    is_away = mmap.mmap(-1, 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            die_at(way, at, delay_s, is_away)
            inject(target, draw)
            code = 0
        except CannotInject:
            code = 3
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    names = {-signal.SIGKILL: "killed", 0: "done before", 3: "refused"}
    assert code in names, f"the injecting child ended with {code}"
    if code == -signal.SIGKILL and is_away[0]:
        return "killed, a thread on its way"
    return names[code]


def die_at(way: str, at: int, delay_s: float, is_away: mmap.mmap) -> None:
    """Have this process killed at its call of ptrace with that number.

    Args:
        is_away: Where to note whether a thread has been sent on its way, and is not back.
    """
    real: Callable[..., None] = TracedThread._call
    calls = 0

    def call(self: TracedThread, *given: int) -> None:
        nonlocal calls
        # The instructions are in place already, but for the first time.
        calls += 1
        if calls == at and way == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *given)
        if given[0] in (SENT, BACK):
            is_away[0] = given[0] == SENT
        if calls == at:
            end = time.perf_counter() + delay_s
            while time.perf_counter() < end:
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    pytest.MonkeyPatch().setattr(TracedThread, "_call", call)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--python", action="append", default=[])
    options = parser.parse_args()
    for python in options.python or [sys.executable]:
        began = time.monotonic()
        tally = kill_again_and_again(python, options.kills)
        print(f"{python}: {dict(tally)}, {time.monotonic() - began:.0f} s, no harm", flush=True)


if __name__ == "__main__":
    main()
