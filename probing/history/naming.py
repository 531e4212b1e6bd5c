"""What a process and its run are called in a history.

A process's name is its own: host, pid, start, boot, and in a container its pid namespace, since
containers may have one host name and the same pids. A run is one start of a job, with all its
ranks. A launcher gives no name that no later start has, too (`torchrun` without `--rdzv-id`, one id
for many starts), so the ranks find each other: a rank joins the run of its job and attempt that has
no such rank yet and began nearest to it, within ten minutes, and begins another one otherwise.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import TypedDict

from ..messages.card import Card
from ..rundir import numbers
from .files import Shelf, locked, read_json
from .layout import job_file, quoted, state_file


class JobRun(TypedDict):
    """A run of a job, and the process of each of its ranks."""

    run: str
    attempt: int
    started_ns: int
    ranks: dict[str, str]


_TOGETHER_NS = 600 * 10**9
"""How far apart ranks of one start begin at most."""
_BEGAN = re.compile(r"-(\d{4})(\d\d)(\d\d)T\d{6}(?:-restart-\d+)?(?:-\d+)?$")
_MOST_RUNS = 64
"""So many of the newest runs of a job are remembered, for ranks that are still to come."""


def process_name(card: Card) -> str:
    """What a process is called: no other has that name."""
    boot = card.boot_id.replace("-", "")[:8]
    return f"{quoted(card.host)}-{card.pid}-{card.start_time}-{boot}{_contained(card)}"


def called(card: Card) -> str:
    """What people call a process."""
    return f"process {card.pid} of {card.host}"


def exporting(root: Path, card: Card) -> AbstractContextManager[None]:
    """Be the only one who exports a process into a folder.

    Raises:
        HistoryBusy: Somebody does.
        HistoryUnwritable: The folder cannot be written to.
    """
    busy = f"{called(card)} is being exported"
    return locked(root, state_file(root, process_name(card)), busy=busy)


def run_of(root: Path, project: str, card: Card, process: str) -> str:
    """The run that a process belongs to; the same whenever it is asked.

    Raises:
        HistoryUnwritable: It cannot be written down.
    """
    if card.job is None or card.rank is None:
        return run_alone(card)
    path = job_file(root, project, card.job)
    with locked(root, path, waits=True):
        runs: list[JobRun] = read_json(path) or []
        known = next((run for run in runs if process in run["ranks"].values()), None)
        if known is not None:
            return known["run"]
        run = fitting(runs, card) or begun(runs, card)
        run["ranks"][str(card.rank)] = process
        Shelf(root, process).put_json(path, runs[-_MOST_RUNS:])
        return run["run"]


def run_alone(card: Card) -> str:
    """The run of a process that is no rank of a job."""
    return f"{card.host}-{card.pid}-{_moment(card.started_ns)}{_contained(card)}"


def fitting(runs: list[JobRun], card: Card) -> JobRun | None:
    """The run that is still without this rank and began with it; of several the nearest in time."""

    def apart_ns(run: JobRun) -> int:
        return abs(run["started_ns"] - card.started_ns)

    fits = [
        run
        for run in runs
        if run["attempt"] == card.attempt
        and apart_ns(run) <= _TOGETHER_NS
        and str(card.rank) not in run["ranks"]
    ]
    return min(fits, key=apart_ns, default=None)


def begun(
    runs: list[JobRun], card: Card, *, stored: Callable[[str], str] = lambda name: name
) -> JobRun:
    """A run that begins with this rank.

    Args:
        stored: What is left of a name where the runs are remembered.
    """
    name = f"{card.job}-{_moment(card.started_ns)}"
    name += f"-restart-{card.attempt}" if card.attempt else ""
    taken = {run["run"] for run in runs}
    names = (stored(_numbered(name, number)) for number in range(1, len(runs) + 2))
    run: JobRun = {
        "run": next(one for one in names if one not in taken),
        "attempt": card.attempt,
        "started_ns": card.started_ns,
        "ranks": {},
    }
    runs.append(run)
    return run


def began_on(run: str) -> date | None:
    """The day in UTC on which a run began, by its name; None of a name that does not say so."""
    found = _BEGAN.search(run)
    if found is None:
        return None
    with contextlib.suppress(ValueError):
        return date(*map(int, found.groups()))
    return None


def _contained(card: Card) -> str:
    """The pid namespace of a container's process, whose pid others have, too, as a name's end."""
    namespace = card.pid_namespace
    return "" if namespace in (0, numbers.FIRST) else f"-{namespace}"


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _moment(at_ns: int) -> str:
    """A moment in UTC as a part of a name."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(at_ns / 1e9))
