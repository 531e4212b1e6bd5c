"""Asks ranks for what a verdict needs: their rings twice, their stacks and their ends once.

Rules of this file: nothing here needs the interpreter lock of a rank. Stacks come by the ladder; a
rank that fails at one question is still asked the others, and what it could not tell is a note.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ....cluster.job.rank_sets import ranks_of
from ....errors import NotPython, ProbingError, ProcessEnded
from ....linux.thread_numbers import outer_numbers
from ....messages.common import Backtrace
from ....messages.frozen import dataclass
from ....rundir.folders import folder_at
from ....stacks.thread_waits import deadlock_text, deadlocks
from ...device_use import sample_words, xid_lines
from ..evidence import Call, Doing, Group, RankEvidence, State, Work
from ..words.texts import seconds
from .device_waits import with_device
from .doings import doing_of, group_asked_for, is_idle, training_thread, with_worker
from .looks import with_same_waits
from .others import Others
from .own_ends import End, end_of, how_ended
from .record import Newest, Record, Row, newest_in, peek, record_of, still_s
from .work import work_between

if TYPE_CHECKING:
    from ....client.base import Process
    from ....cluster.job.members import Member

_MOST_CODE = 60
_DEAD_SOURCES = frozenset({"crash", "open rows"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """What was seen of a rank besides its rings.

    Attributes:
        trace: Its stacks; None where there are none.
        end: How it ended or is about to.
        not_python: Why there is nothing to look at, where it runs no Python.
    """

    state: State
    trace: Backtrace | None
    end: End = End()
    not_python: NotPython | None = None
    notes: tuple[str, ...] = ()


def stacks_of(process: Process, _: Member) -> Stacks:
    """Where a rank is, and whether it has ended or is about to."""
    notes: list[str] = []
    try:
        trace, state = _trace(process, notes)
    except NotPython as error:
        return Stacks(state="unreachable", trace=None, not_python=error, notes=(error.message,))
    end = how_ended(process, state, trace, notes)
    return Stacks(state=state, trace=trace, end=end, notes=tuple(notes))


def may_get_on(stacks: Stacks) -> bool:
    """Whether a second look at a rank's stack can tell more: it lives, and not only waits.

    A main thread that is at its end may wait for the one that trains.
    """
    doing = doing_of(stacks.trace) if stacks.trace and stacks.state != "dead" else None
    return doing is not None and doing.kind != "collective"


def is_joining(stacks: Stacks) -> bool:
    """Whether a rank makes a process group: the local variables then say which."""
    doing = doing_of(stacks.trace) if stacks.trace else None
    return doing is not None and doing.kind == "joining"


def stack_again(process: Process, *, locals: bool = False) -> Backtrace | None:
    """The second look at a rank's stack."""
    try:
        return process.backtrace(locals=locals)
    except ProbingError:
        return None


def evidence_of(
    process: Process,
    member: Member,
    first: Newest | None,
    stacks: Stacks | None,
    *,
    again: Backtrace | None = None,
    others: Others | None = None,
) -> RankEvidence:
    """All that is known of a rank.

    Args:
        first: How far its record had come at the first look.
        stacks: What else was seen of it; None where that took too long.
        again: Its stacks a second time.
        others: The processes that it waits for.
    """
    notes: list[str] = []
    record = record_of(process, notes)
    seen = _seen(process, stacks, record, again)
    is_dead, trace = seen.state == "dead", seen.trace
    known = _on_record(absent(member, seen.state, None), record)
    known = _with_progress(_with_end(known, seen.end), process, first, record)
    thread = _thread(process, known.calls, record, trace)
    if trace is not None and again is not None:
        trace, again = with_same_waits(trace, again)
    device = next(iter(record["device"]), None)
    doing = _doing(trace, again, thread, device) if trace and not is_dead else None
    doing = with_worker(doing, others.worker) if doing and others else doing
    held = next(iter(record["evals"]), None) if doing and doing.kind == "held" else None
    return replace(
        known,
        pid=member.pid if member.pid is not None else (trace.pid if trace else None),
        age_s=(time.time_ns() - member.started_ns) * 1e-9 if member.started_ns else None,
        has_agent=bool(member.started_ns),
        doing=_held_by(doing, held) if doing and held else doing,
        eval_id=held["eval_id"] if held else None,
        work=_work(stacks, trace, again, thread),
        others=others.others if others else (),
        lock_pid=others.lock_pid if others else None,
        deadlocks=tuple(map(deadlock_text, deadlocks(trace.threads))) if trace else (),
        has_stack=trace is not None and bool(trace.threads),
        notes=tuple(dict.fromkeys((*notes, *seen.notes))),
    )


def _seen(
    process: Process, stacks: Stacks | None, record: Record, again: Backtrace | None
) -> Stacks:
    """What was seen of a rank, whose record may show that it is there, or that it is let go."""
    seen = stacks or Stacks(state="unreachable", trace=None, notes=("its stack took too long",))
    if seen.state == "stopped" and again is not None:
        return replace(seen, state=_state_of(again), trace=again)
    if seen.state != "unreachable":
        return seen
    if process.folder is not None and process.folder.has_ended():
        return replace(seen, state="dead", end=end_of(process.folder))
    return replace(seen, state="silent") if record["look"] else seen


def _work(
    stacks: Stacks | None, trace: Backtrace | None, again: Backtrace | None, thread: int | None
) -> Work | None:
    """What it got done between the looks, of which the second may be the one that counts."""
    first = stacks.trace if stacks is not None and trace is again else trace
    return work_between(first, again, thread) if first and again else None


def _on_record(evidence: RankEvidence, record: Record) -> RankEvidence:
    """What the record of a rank tells, without its stacks."""
    calls = sorted(record["calls"], key=lambda row: row["start_ns"])
    steps, device = next(iter(record["steps"]), {}), next(iter(record["device"]), None)
    module = None if evidence.state == "dead" else _module(next(iter(record["modules"]), {}))
    return replace(
        evidence,
        calls=tuple(_call(row) for row in calls),
        groups=tuple(_group(row) for row in record["groups"]),
        step=steps.get("step"),
        still_s=still_s(record["look"]),
        median_step_s=steps.get("median_step_s"),
        not_finite=steps.get("not_finite"),
        module=module,
        device=sample_words(device) if device else None,
        device_errors=tuple(xid_lines(record["xids"])),
    )


def _with_end(evidence: RankEvidence, end: End) -> RankEvidence:
    """How a rank has ended or is about to."""
    return replace(
        evidence,
        ending=end.words,
        ended_ns=end.ended_ns,
        died_of_peers=not end.is_own,
        is_terminated=end.is_terminated,
        asked_by=end.asked_by,
        way=end.way,
    )


def absent(member: Member, state: State, why: str | None) -> RankEvidence:
    """What is known of a rank that gave no answer at all."""
    return RankEvidence(
        rank=member.rank,
        host=member.host,
        pid=member.pid,
        endpoint=member.endpoint,
        world_size=member.world_size,
        state=state,
        has_stack=False,
        notes=(why,) if why else (),
    )


def unasked(member: Member, why: str | None) -> RankEvidence:
    """What is known of a rank that could not be asked in time; how it ended, if it has."""
    folder = folder_at(Path(member.endpoint)) if os.path.isabs(member.endpoint) else None
    if folder is None or not folder.has_ended():
        return absent(member, "unreachable", why)
    return _with_end(absent(member, "dead", why), end_of(folder))


def _doing(
    trace: Backtrace, again: Backtrace | None, thread: int | None, device: Row | None
) -> Doing | None:
    """What the training thread does, with the group that it makes if it makes one."""
    doing = doing_of(trace, thread)
    if doing is not None and device is not None:
        second = training_thread(again.threads, thread) if again is not None else None
        doing = with_device(doing, training_thread(trace.threads, thread), second, device)
    if doing is None or again is None or doing.kind != "joining":
        return doing
    return replace(doing, group_ranks=group_asked_for(again, thread))


def _held_by(doing: Doing, held: Row) -> Doing:
    """What a training thread does that stands still for an eval."""
    code, *more = (held["code"] or "").strip().splitlines() or [""]
    text = code if len(code) <= _MOST_CODE and not more else f"{code[:_MOST_CODE]}..."
    shown = f" (`{text}`)" if code else ""
    words = f"stands still for eval {held['eval_id']}, which has run for {seconds(held['age_s'])}"
    return replace(doing, words=f"{words}{shown}")


def _with_progress(
    known: RankEvidence, process: Process, first: Newest | None, record: Record
) -> RankEvidence:
    """Whether its record grows, or need not, as its recording is off: calls then stay open."""
    if first is None or known.state == "dead":
        return known
    folder = process.folder
    moved = first != (newest_in(record["look"]) if folder is None else peek(folder))
    try:
        is_paused = not (moved or process.status().is_recording)
    except ProbingError:
        is_paused = False
    calls = () if is_paused else known.calls
    return replace(known, moved=moved, is_paused=is_paused, calls=calls)


def _call(row: Row) -> Call:
    renamed = {"process_group": "group"}
    return Call(**{renamed.get(name, name): value for name, value in row.items()})


def _group(row: Row) -> Group:
    return Group(
        name=row["process_group"],
        description=row["description"],
        backend=row["backend"],
        size=row["size"],
        ranks=_members(row["ranks"]) if row["ranks"] else (),
    )


@lru_cache(maxsize=4096)
def _members(text: str) -> tuple[int, ...]:
    """The ranks of a group, the same object for all that have the same ones."""
    try:
        return ranks_of(text)
    except ProbingError:
        return ()


def _thread(
    process: Process, calls: Sequence[Call], record: Record, trace: Backtrace | None
) -> int | None:
    """The thread that trains, by its number in these stacks; None for the main thread.

    That is the one of the collective in progress, else of the module, else of the last step; but
    none that rests, as one of a pool does until it is given the next step.
    """
    opened = [call.thread_id for call in calls if call.is_open and not call.is_async]
    told = [row["thread_id"] for part in ("modules", "trains") for row in record[part]]
    number = next(iter((*opened[-1:], *told)), None)
    seen = {thread.thread_id: thread for thread in trace.threads} if trace else {}
    if number not in seen and process.folder is not None:  # it has a pid namespace of its own
        number = outer_numbers(process.folder.pid).get(number or 0, number)
    thread = seen.get(number or 0)
    return None if thread is not None and is_idle(thread) else number


def _module(row: Row) -> str | None:
    if not row:
        return None
    return f"{row['module']} ({row['class']})" if row["class"] != row["module"] else row["module"]


def _trace(process: Process, notes: list[str]) -> tuple[Backtrace | None, State]:
    """The stacks, and what the way to them says about the state.

    Raises:
        NotPython: It has no stacks of Python.
    """
    try:
        trace = process.backtrace()
    except NotPython:
        raise
    except ProcessEnded:
        return None, "dead"
    except ProbingError as error:
        notes.append(error.message)
        return None, "unreachable"
    return trace, _state_of(trace)


def _state_of(trace: Backtrace) -> State:
    """What its stacks say of a process."""
    if trace.source in _DEAD_SOURCES:
        return "dead"
    main = next((thread for thread in trace.threads if thread.is_main), None)
    if main is not None and main.state in {"T", "t"}:
        return "stopped"
    return "answering" if trace.source.startswith("agent") else "silent"
