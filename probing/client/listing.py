"""Every process of this user that has an agent or a record, and how it is doing.

Rules of this file: what a process was doing is read from its files; only whether it can answer
is asked of it, by a ping that loads nothing, of all of them at once.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from ..arguments import shown_command
from ..attach.preflight import find_obstacle
from ..errors import Busy, ConnectionLost, NoSuchProcess, NotAnswering, NotProbed
from ..linux import process
from ..linux.host_memory import near_limit
from ..messages.card import Card
from ..messages.frozen import dataclass
from ..messages.limits import glance_s
from ..own_files import is_our_command
from ..postmortem import crashes
from ..postmortem.endings import ending_of
from ..postmortem.kernel_log import KernelKill, logged_kills
from ..postmortem.not_finite import peek_since
from ..reach.endpoint import Local, resolve
from ..reach.ping import ping
from ..ring import peek as ring_peek
from ..rundir.attach_order import AttachFiles
from ..rundir.folders import ProcessFolder, from_env
from ..rundir.pruning import overdue
from ..stacks import text as stacks

State = Literal[
    "training",
    "no step ends",
    "idle",
    "not recorded",
    "stopped",
    "not answering",
    "attaching",
    "no agent",
    "elsewhere",
    "dead",
]

_LOADER_WORKER = "pt_data_worker"
"""What torch calls a worker of a data loader."""
_RECENT_S = 10.0
_MOST_PROBLEMS, _LONGEST_PROBLEM = 32, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSummary:
    """One line of `probing list`.

    Attributes:
        state: ``training``: a step ended, or began, in the last 10 s or within five times the
            last step's duration. ``no step ends``: none did, though some are on record. ``idle``:
            it answers, and no step of it is on record. ``not recorded``: it answers, and its
            recording is off. ``not answering``: alive, but runs no Python code. ``attaching``: an
            agent is on its way in; how far it has come is among the problems. ``no agent``: its
            agent is stopped or did not start.
            ``elsewhere``: it is another container's or another machine's, and shares this run
            directory; whether it runs cannot be told from here.
        step: The last step recorded.
        step_age_s: Seconds since that step began.
        folder: Its run folder; an endpoint, too.
        problems: What its agent could not do, that its memory cgroup is close to its limit, and
            since when its loss has not been finite; of an ended one, the crash that it ended by.
        role: What it is to its parent, where it has no agent: a loader's ``worker``, or a ``fork``.
        parent: The pid of that parent.
        attempt: How often its launcher had started its job anew (torchrun's `--max-restarts`).
        ended: How it ended, in a few words; only of an ended one that `probing list` shows.
    """

    pid: int
    rank: int | None
    state: State
    step: int | None
    step_age_s: float | None
    command: str
    python: str
    listen: str | None
    folder: str | None
    problems: tuple[str, ...]
    has_torch: bool | None
    obstacle: str | None = None
    role: str | None = None
    parent: int | None = None
    attempt: int = 0
    ended: str | None = None


def list_processes(*, dead: bool = False, every: bool = False) -> tuple[ProcessSummary, ...]:
    """Every process of this user with an agent, newest first.

    Args:
        dead: Whether to include ended processes whose record is still kept.
        every: Whether to include the Python processes without an agent, behind the others.

    Raises:
        UnsafeRunDirectory: No agent would use the run directory as it is.
    """
    directory = from_env()
    folders = [folder for folder in directory.folders() if dead or folder.is_alive()]
    left_out = overdue(folders) if dead else []
    folders = [folder for folder in folders if folder not in left_out]
    known = {folder.pid for folder in folders if folder.is_alive()}
    strangers = [pid for pid in _python_processes() if pid not in known] if every else []
    if not (folders or strangers):
        return ()
    look = functools.partial(_listed, kills=logged_kills() if dead else ())
    with ThreadPoolExecutor(max_workers=min(32, len(folders) + len(strangers))) as pool:
        seen = filter(None, pool.map(summarize_stranger, strangers))
        return (*pool.map(look, folders), *seen)


def _python_processes() -> list[int]:
    """The Python processes whose files this user may look at, newest first, without our own."""
    pids = sorted((int(name) for name in os.listdir("/proc") if name.isdecimal()), reverse=True)
    return [
        pid for pid in pids if process.is_python(pid) and not is_our_command(process.command(pid))
    ]


def summarize_stranger(pid: int) -> ProcessSummary | None:
    """Look at a process without a folder in this run directory; None when it is gone.

    It may have a folder in another directory.
    """
    try:
        place = resolve(pid, from_env())
    except NoSuchProcess:
        return None
    if isinstance(place, Local):
        return summarize(place.folder)
    obstacle = find_obstacle(pid)
    role, parent = _role(pid)
    from ..rundir.removed import ANEW, removal

    gone = removal(pid)
    return ProcessSummary(
        pid=pid,
        rank=None,
        state="no agent",
        step=None,
        step_age_s=None,
        command=shown_command(process.command(pid)),
        python="",
        listen=None,
        folder=None,
        problems=() if gone is None else (f"{gone}. {ANEW.format(pid=pid)}",),
        has_torch=process.has_library(pid, "libtorch"),
        obstacle=obstacle.message if obstacle else None,
        role=role,
        parent=parent,
    )


def _role(pid: int) -> tuple[str | None, int | None]:
    """What a process is to its parent: a data loader's worker, or a fork of it that runs on."""
    status = process.status(pid)
    parent = int(status.get("PPid", 0))
    if not process.is_python(parent):
        return None, None
    if status.get("Name") == _LOADER_WORKER:
        return "worker", parent
    return ("fork", parent) if process.command(pid) == process.command(parent) else (None, None)


def _listed(folder: ProcessFolder, kills: Sequence[KernelKill]) -> ProcessSummary:
    """Look at one process with a run folder, and at how it ended, without its record of memory.

    Args:
        kills: What the kernel's log holds.
    """
    found = summarize(folder)
    ending = ending_of(folder, (), lambda: kills) if found.state == "dead" else None
    return found if ending is None else dataclasses.replace(found, ended=ending.brief)


def summarize(folder: ProcessFolder) -> ProcessSummary:
    """Look at one process with a run folder."""
    reached = _reach(folder)
    row = ring_peek.last_step(folder)
    step = age = duration = None
    if row is not None:
        step = int(row.values["step"] or 0)
        age = row.age_s(is_of_this_boot=folder.is_of_this_boot())
        duration = row.values["duration_ns"]
    card = folder.read_card()
    is_off = card is not None and not card.is_recording
    state = reached or ("not recorded" if is_off else _activity(folder, step, age, duration))
    return ProcessSummary(
        pid=folder.pid,
        rank=card.rank if card else None,
        attempt=card.attempt if card else 0,
        state=state,
        step=step,
        step_age_s=age,
        command=shown_command(card.command if card else process.command(folder.pid)),
        python=card.python if card else "",
        listen=card.listen if card and state != "dead" else None,
        folder=str(folder.path),
        has_torch=process.has_library(folder.pid, "libtorch") if folder.is_alive() else None,
        problems=(
            *_crash(folder, state),
            *_attach_problems(folder, state),
            *_agent_problems(folder, card),
            *_loss(folder),
            *_memory(folder, state),
        ),
    )


def _loss(folder: ProcessFolder) -> tuple[str, ...]:
    """Since when the loss has not been finite."""
    since = peek_since(folder)
    return () if since is None else (since.sentence(),)


def _memory(folder: ProcessFolder, state: State) -> tuple[str, ...]:
    """Whether the OOM killer is about to kill a process."""
    warning = None if state == "dead" else near_limit(folder.pid)
    return () if warning is None else (warning,)


def _crash(folder: ProcessFolder, state: State) -> tuple[str, ...]:
    """How an ended process ended, where it left word of that."""
    crash = crashes.read_crash(folder) if state == "dead" else None
    return (crashes.describe(crash),) if crash is not None else ()


def _attach_problems(folder: ProcessFolder, state: State) -> tuple[str, ...]:
    """How far an attach has come that has not come to its end."""
    attach = AttachFiles(folder).read() if state in ("attaching", "no agent") else None
    return () if attach is None else (attach.describe()[:_LONGEST_PROBLEM],)


def _agent_problems(folder: ProcessFolder, card: Card | None) -> tuple[str, ...]:
    if card is None:
        has_attach = AttachFiles(folder).read() is not None
        return () if has_attach else ("its card cannot be read",)
    return tuple(problem[:_LONGEST_PROBLEM] for problem in card.problems[:_MOST_PROBLEMS])


def _reach(folder: ProcessFolder) -> State | None:
    """Why the process cannot be asked; None when it can."""
    if not folder.is_alive():
        return "elsewhere" if folder.may_run_elsewhere() else "dead"
    if stacks.is_stopped(folder.pid):
        return "stopped"
    attach = AttachFiles(folder).read()
    if attach is not None and attach.stage != "failed":
        return "attaching"
    try:
        ping(folder, timeout_s=glance_s())
    except NotProbed:
        return "no agent"
    except (NotAnswering, ConnectionLost):
        return "not answering"
    except Busy:
        return None  # it has said so itself
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
    return "training" if age < max(_RECENT_S, 5e-9 * (usual or 0)) else "no step ends"
