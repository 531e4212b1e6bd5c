"""How long attaching takes until the agent answers, and for how long it holds the process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from probing.attach.attach import Attached, attach
from probing.attach.injectors.names import AUTO, PENDING, THREAD

from .measures import Measure, rounds_for, scaled
from .processes import cost_of, temporary_home, user_env
from .ticks import Pause, slowest_tick, ticking

_COMMAND = "`probing attach PID`, whole command"
_MODES = {"training": "training", "hung": "hung process"}


def measure(effort: float) -> Iterator[Measure]:
    """Each way in, each time into a fresh process that was never attached to."""
    for mode, name in _MODES.items():
        # In a process that hangs nothing takes from the queue.
        ways = (THREAD, PENDING, AUTO, _COMMAND) if mode == "training" else (THREAD, _COMMAND)
        found: dict[str, list[tuple[Attached | None, Pause]]] = {way: [] for way in ways}
        for _ in range(rounds_for(5, effort)):
            for way in ways:
                found[way].append(_attach(mode, way))
        for way, results in found.items():
            yield from _measures(f"{name}, {way}", results)


def _attach(mode: str, way: str) -> tuple[Attached | None, Pause]:
    """Attach to a fresh process."""
    came: list[Attached] = []
    with (
        temporary_home() as home,
        _run_directory(home),
        ticking(mode, home, agent=False) as target,
    ):
        command = [sys.executable, "-m", "probing", "attach", str(target.pid)]
        if way == _COMMAND:
            pause = target.pause(lambda: cost_of(command, user_env(home)))
        else:
            pause = target.pause(lambda: came.append(attach(target.pid, how=way)))
    return (came[0] if came else None), pause


@contextlib.contextmanager
def _run_directory(home: Path) -> Iterator[None]:
    """Have `attach` use this run directory."""
    before = os.environ.get("PROBING_HOME")
    os.environ["PROBING_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["PROBING_HOME"]
        if before is not None:
            os.environ["PROBING_HOME"] = before


def _measures(what: str, results: list[tuple[Attached | None, Pause]]) -> Iterator[Measure]:
    """The figures of one way."""
    pauses = [pause for _, pause in results]
    seconds = [pause.seconds for pause in pauses]
    yield Measure(what=f"attach to a {what}", unit="ms", values=scaled(seconds, 1e3))
    held = [attached.held_s for attached, _ in results if attached is not None]
    if held:
        yield Measure(what=f"held while attaching to a {what}", unit="ms", values=scaled(held, 1e3))
    yield slowest_tick(what, pauses)
