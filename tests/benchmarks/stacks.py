"""How long each way of getting a stack takes, and for how long it makes the process stand still."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from probing.linux import process
from probing.reach.address import Address
from probing.reach.endpoint import Local, resolve
from probing.reach.transport import ask
from probing.rundir.folders import RunDirectory
from probing.stacks import py_spy, text as stacks
from probing.stacks.py_spy import Dump

from .measures import Measure, rounds_for, scaled
from .processes import cost_of, temporary_home, user_env
from .ticks import Pause, slowest_tick, ticking

Ask = Callable[[], object]


_MODES = {"training": "training", "hung": "hung process"}


def measure(effort: float) -> Iterator[Measure]:
    """In a training and in a process that hangs, each way in turn with a stretch of quiet."""
    for mode, name in _MODES.items():
        with temporary_home() as home, ticking(mode, home, agent=True) as target:
            ways = _ways(home, target.pid)
            found: dict[str, list[Pause]] = {way: [] for way in ways}
            for ask_once in ways.values():
                ask_once()  # what is loaded at the first time is loaded
            for _ in range(rounds_for(20, effort)):
                for way, ask_once in ways.items():
                    found[way].append(target.pause(ask_once))
        for way, pauses in found.items():
            seconds = [pause.seconds for pause in pauses]
            yield Measure(what=f"stacks of a {name}, {way}", unit="ms", values=scaled(seconds, 1e3))
            yield slowest_tick(f"{name}, {way}", pauses)


def _ways(home: Path, pid: int) -> dict[str, Ask]:
    """The ways, by name."""
    place = resolve(pid, RunDirectory(home))
    assert isinstance(place, Local), f"it has no run folder: {place}"
    address = Address(path=place.folder.socket)
    command = [sys.executable, "-m", "probing", str(pid), "backtrace"]
    return {
        "the agent": lambda: ask(address, "backtrace", timeout_s=60.0),
        "py-spy": lambda: py_spy.take(pid, Dump()),
        "py-spy with C functions": lambda: py_spy.take(pid, Dump(native=True, timeout_s=60.0)),
        "/proc alone": lambda: stacks.from_kernel(process.threads(pid), pid),
        "`probing PID backtrace`, whole command": lambda: cost_of(command, user_env(home)),
    }
