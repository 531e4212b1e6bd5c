"""Every process of this user that has an agent or a record, and how it is doing.

Rules of this file: what a process was doing is read from its files; only whether it can answer
is asked of it, by a ping that loads nothing, of all of them at once.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from . import ring_peek, stacks
from .client import ping
from .errors import ConnectionLost, NotAnswering, NotProbed
from .rundir import ProcessFolder, from_env

State = Literal["training", "idle", "stopped", "not answering", "no agent", "dead"]

_PING_S = 0.5
_RECENT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSummary:
    """One line of `probing list`.

    Attributes:
        state: ``training``: a step ended, or began, in the last 10 s or within five times the
            last step's duration. ``idle``: it answers, but makes no steps. ``not answering``:
            alive, but runs no Python code. ``no agent``: its agent is stopped or did not start.
        step: The last step recorded.
        step_age_s: Seconds since that step began.
        folder: Its run folder; an endpoint, too.
        problems: What its agent could not do.
    """

    pid: int
    rank: int | None
    state: State
    step: int | None
    step_age_s: float | None
    command: str
    python: str
    listen: str | None
    folder: str
    problems: tuple[str, ...]


def list_processes(*, dead: bool = False) -> tuple[ProcessSummary, ...]:
    """Every process of this user with an agent, newest first.

    Args:
        dead: Whether to include ended processes whose record is still there.
    """
    folders = [folder for folder in from_env().folders() if dead or folder.is_alive()]
    if not folders:
        return ()
    with ThreadPoolExecutor(max_workers=min(32, len(folders))) as pool:
        return tuple(pool.map(_summary, folders))


def _summary(folder: ProcessFolder) -> ProcessSummary:
    """Look at one process."""
    reached = _reach(folder)
    row = ring_peek.last_step(folder)
    step = age = duration = None
    if row is not None:
        step = int(row.values["step"] or 0)
        age = max(0.0, time.time() - (row.values["start_ns"] or 0) * 1e-9)
        duration = row.values["duration_ns"]
    card = folder.read_card()
    state = reached or _activity(folder, step, age, duration)
    return ProcessSummary(
        pid=folder.pid,
        rank=card.rank if card else None,
        state=state,
        step=step,
        step_age_s=age,
        command=" ".join(card.command) if card else "",
        python=card.python if card else "",
        listen=card.listen if card and state != "dead" else None,
        folder=str(folder.path),
        problems=card.problems if card else ("its card cannot be read",),
    )


def _reach(folder: ProcessFolder) -> State | None:
    """Why the process cannot be asked; None when it can."""
    if not folder.is_alive():
        return "dead"
    if stacks.is_stopped(folder.pid):
        return "stopped"
    try:
        ping(folder, timeout_s=_PING_S)
    except NotProbed:
        return "no agent"
    except (NotAnswering, ConnectionLost):
        return "not answering"
    return None


def _activity(
    folder: ProcessFolder, step: int | None, age: float | None, duration: float | None
) -> State:
    """Whether a process that answers is making steps."""
    if step is None or age is None:
        return "idle"
    usual = duration
    if usual is None and step > 0:  # the step in progress: compare with the one before
        usual = ring_peek.step_duration_before(folder)
    return "training" if age < max(_RECENT_S, 5e-9 * (usual or 0)) else "idle"
