"""Asks ranks for what a verdict needs: their rings twice, their stacks and their ends once.

Rules of this file: nothing here needs the interpreter lock of a rank. The rings answer in every
state; stacks come by the ladder; a rank that fails at one question is still asked the others, and
what it could not tell is a note. Ages are computed where the rank is, so no clock is compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ....cluster.job.rank_sets import ranks_of
from ....errors import NotPython, ProbingError, ProcessEnded, RingError, SqlError
from ....messages.common import Backtrace
from ....messages.frozen import dataclass
from ....ring.peek import RingPeek
from ....rundir.folders import ProcessFolder
from ....sql.quoting import in_one
from ....stacks.thread_waits import deadlock_text, deadlocks
from ....tables import COLLECTIVES, STEPS, TORCH_TRACE
from ...device_use import NEWEST_SAMPLE, XIDS, sample_words, xid_lines
from ..evidence import Call, Doing, Group, RankEvidence, State
from ..words.texts import seconds
from .device_waits import with_device
from .doings import doing_of, group_asked_for, training_thread, with_worker
from .looks import with_same_waits
from .others import Others
from .own_ends import how_ended
from .work import work_between

if TYPE_CHECKING:
    from ....client.base import Process
    from ....cluster.job.members import Member

_MOST_CODE = 60
_DEAD_SOURCES = frozenset({"crash", "open rows"})
NEWEST = """
    SELECT max(start_ns) AS newest_ns, max(start_ns + coalesce(duration_ns, 0)) AS ended_ns,
           epoch_ns(now()) AS now_ns,
           (SELECT count(*) FILTER (duration_ns IS NOT NULL) FROM python.collectives) AS done
    FROM (SELECT start_ns, duration_ns FROM python.collectives
          UNION ALL SELECT start_ns, duration_ns FROM python.steps
          UNION ALL SELECT start_ns, duration_ns FROM python.torch_trace)
"""
_CALLS = """
    SELECT process_group, seq, op, shapes, dtypes, root, reduce_op, peer, is_async, caller,
           thread_id, (epoch_ns(now()) - start_ns) / 1e9 AS age_s, start_ns,
           duration_ns IS NULL AND error IS NULL AS is_open, error
    FROM python.collectives AS c
    WHERE start_ns >= coalesce((SELECT max(created_ns) FROM python.process_groups AS g
                                WHERE g.process_group = c.process_group), start_ns)
    QUALIFY row_number() OVER (PARTITION BY process_group ORDER BY start_ns DESC) <= 32
         OR (duration_ns IS NULL AND row_number() OVER (
                PARTITION BY process_group, duration_ns IS NULL ORDER BY start_ns) <= 32)
"""
"""The last of each group, and the first of those in progress: what a rank waits in is one of them,
and ten thousand ranks have room. A group that was made again counts anew, under the same name."""
_GROUPS = """
    SELECT process_group, description, backend, size, ranks FROM python.process_groups
    QUALIFY row_number() OVER (PARTITION BY process_group ORDER BY created_ns DESC) = 1
"""
_STEPS = """
    SELECT max(step) AS step,
           max(step) FILTER (NOT loss_finite AND step > coalesce(
               (SELECT max(step) FROM python.steps WHERE loss_finite), -1)) AS not_finite,
           (SELECT median(duration) FROM (SELECT duration FROM python.steps
            WHERE duration IS NOT NULL ORDER BY step DESC LIMIT 20)) AS median_step_s
    FROM python.steps
"""
_MODULES = """
    SELECT module, class, thread_id FROM python.torch_trace
    WHERE duration_ns IS NULL AND stage <> 'step' ORDER BY start_ns DESC LIMIT 1
"""
_EVALS = """
    SELECT eval_id, code, (epoch_ns(now()) - start_ns) / 1e9 AS age_s FROM python.evals
    WHERE duration_ns IS NULL ORDER BY start_ns LIMIT 1
"""
_PARTS = {
    "calls": _CALLS,
    "groups": _GROUPS,
    "steps": _STEPS,
    "modules": _MODULES,
    "look": NEWEST,
    "evals": _EVALS,
    "device": NEWEST_SAMPLE,
    "xids": XIDS,
}
RECORD = in_one(_PARTS)
"""All of the record that is needed."""
_WITHOUT_DEVICE = in_one({k: sql for k, sql in _PARTS.items() if k not in {"device", "xids"}})
"""The same of an agent of an older version, which has no such table."""
Row = Mapping[str, Any]
Newest = tuple[object, ...]
"""How far a record has come, to be compared with another look at it and nothing else."""
_GROWING = (COLLECTIVES.name, STEPS.name, TORCH_TRACE.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """What was seen of a rank besides its rings.

    Attributes:
        trace: Its stacks; None where there are none.
        ending: How it ended or is about to.
        ended_ns: When.
        is_own_end: Whether it ended for a reason of its own.
        not_python: Why there is nothing to look at, where it runs no Python.
    """

    state: State
    trace: Backtrace | None
    ending: str | None = None
    ended_ns: int | None = None
    is_own_end: bool = True
    not_python: NotPython | None = None
    notes: tuple[str, ...] = ()


def newest_of(process: Process, _: Member) -> Newest | None:
    """How far the record of a rank has come; None where it cannot be read."""
    if process.folder is not None:
        return _peek(process.folder)
    return _newest(_rows(process, NEWEST, []))


def stacks_of(process: Process, _: Member) -> Stacks:
    """Where a rank is, and whether it has ended or is about to."""
    notes: list[str] = []
    try:
        trace, state = _trace(process, notes)
    except NotPython as error:
        return Stacks(state="unreachable", trace=None, not_python=error, notes=(error.message,))
    ending, ended_ns, is_own_end = how_ended(process, state, trace, notes)
    return Stacks(
        state=state,
        trace=trace,
        ending=ending,
        ended_ns=ended_ns,
        is_own_end=is_own_end,
        notes=tuple(notes),
    )


def may_get_on(stacks: Stacks) -> bool:
    """Whether a second look at a rank's stack can tell more: it lives, and not only waits."""
    doing = doing_of(stacks.trace) if stacks.trace and stacks.state != "dead" else None
    return doing is not None and doing.kind not in {"collective", "stopped", "exiting"}


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
    record = _record(process, notes)
    is_here = process.folder is not None
    newest = newest_of(process, member) if is_here else _newest(record["look"])
    seen = _seen(stacks, record)
    is_dead, trace = seen.state == "dead", seen.trace
    known = _on_record(absent(member, seen.state, None), record)
    if first is not None and not is_dead:
        known = _with_progress(known, process, moved=newest != first)
    thread = _thread(known.calls, next(iter(record["modules"]), {}))
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
        ending=seen.ending,
        ended_ns=seen.ended_ns,
        died_of_peers=not seen.is_own_end,
        eval_id=held["eval_id"] if held else None,
        work=work_between(trace, again, thread) if trace and again else None,
        others=others.others if others else (),
        lock_pid=others.lock_pid if others else None,
        deadlocks=tuple(map(deadlock_text, deadlocks(trace.threads))) if trace else (),
        notes=tuple(dict.fromkeys((*notes, *seen.notes))),
    )


def _seen(stacks: Stacks | None, record: Mapping[str, Sequence[Row]]) -> Stacks:
    """What was seen of a rank, whose record may show that it is there."""
    seen = stacks or Stacks(state="unreachable", trace=None, notes=("its stack took too long",))
    is_silent = seen.state == "unreachable" and record["look"]
    return replace(seen, state="silent") if is_silent else seen


def _on_record(evidence: RankEvidence, record: Mapping[str, Sequence[Row]]) -> RankEvidence:
    """What the record of a rank tells, without its stacks."""
    calls = sorted(record["calls"], key=lambda row: row["start_ns"])
    steps, device = next(iter(record["steps"]), {}), next(iter(record["device"]), None)
    module = None if evidence.state == "dead" else _module(next(iter(record["modules"]), {}))
    return replace(
        evidence,
        calls=tuple(_call(row) for row in calls),
        groups=tuple(_group(row) for row in record["groups"]),
        step=steps.get("step"),
        still_s=_still_s(record["look"]),
        median_step_s=steps.get("median_step_s"),
        not_finite=steps.get("not_finite"),
        module=module,
        device=sample_words(device) if device else None,
        device_errors=tuple(xid_lines(record["xids"])),
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
        notes=(why,) if why else (),
    )


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


def _peek(folder: ProcessFolder) -> Newest | None:
    """The newest row of each table that grows with the training, without a query."""
    found: list[tuple[object, ...]] = []
    for table in _GROWING:
        try:
            with RingPeek(folder.ring(table)) as ring:
                number = ring.newest_seq()
                row = ring.row(number)
        except (OSError, RingError):
            continue
        found.append((table, number, row.values.get("duration_ns") if row else None))
    return tuple(found) or None


def _newest(look: Sequence[Row]) -> Newest | None:
    if not look or look[0]["newest_ns"] is None:
        return None
    return look[0]["newest_ns"], look[0]["ended_ns"], look[0]["done"]


def _still_s(look: Sequence[Row]) -> float | None:
    """Seconds since the newest thing on record."""
    if not look or look[0]["ended_ns"] is None:
        return None
    age: int = look[0]["now_ns"] - look[0]["ended_ns"]
    return max(0.0, age * 1e-9)


def _record(process: Process, notes: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of every part of the record; none where it cannot be read."""
    try:
        rows = process.query(RECORD).to_pylist()
    except SqlError:
        rows = _rows(process, _WITHOUT_DEVICE, notes)
    except ProbingError as error:
        notes.append(error.message)
        rows = []
    found = next(iter(rows), {})
    return {name: found.get(name) or [] for name in _PARTS}


def _with_progress(known: RankEvidence, process: Process, *, moved: bool) -> RankEvidence:
    """Whether its record grows, or need not, as its recording is off: calls then stay open."""
    try:
        is_paused = not (moved or process.status().is_recording)
    except ProbingError:
        is_paused = False
    calls = () if is_paused else known.calls
    return replace(known, moved=moved, is_paused=is_paused, calls=calls)


def _rows(process: Process, sql: str, notes: list[str]) -> list[dict[str, Any]]:
    """The rows of a query; none, and a note, where there is no answer."""
    try:
        return process.query(sql).to_pylist()
    except ProbingError as error:
        notes.append(error.message)
        return []


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


def _thread(calls: Sequence[Call], module: Row) -> int | None:
    """The thread that trains: that of the collective it is in, else of the module, else any's."""
    opened = [call.thread_id for call in calls if call.is_open and not call.is_async]
    number: int | None = module.get("thread_id")
    return opened[-1] if opened else number


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
    if trace.source in _DEAD_SOURCES:
        return trace, "dead"
    main = next((thread for thread in trace.threads if thread.is_main), None)
    if main is not None and main.state in {"T", "t"}:
        return trace, "stopped"
    return trace, "answering" if trace.source.startswith("agent") else "silent"
