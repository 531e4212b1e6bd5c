"""Whether a rank gets on whose record does not grow: what two looks at it and the kernel tell.

Rules of this file: pure functions. A rank that writes, reads or computes will come by itself, so it
is slow and does not hang. Bytes count for as long as they flow; who has only computed for very long
is not believed any more, and who sleeps or waits for a lock gets nothing done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ....messages.common import Backtrace, Frame, ThreadStack, WorkDone
from ....units import percent, size
from ..evidence import RankEvidence, Work
from ..words.texts import seconds
from .doings import IT_WAITS, own_frames, worker_of
from .looks import others_cpu

LEAST_RATE = 1e5
"""Bytes per second from which on a rank is said to write or read: a log is fewer."""
_LEAST_CHILDREN_RATE = 1e6
"""The same of the processes that it has started: those that watch over a machine read a lot."""
LEAST_CPU = 0.2
"""The same of processors in use: on a machine that is overloaded nobody has one for itself."""
_LEAST_CPU_MOVING = 0.05
"""And where the line of its own code has changed, too, or it ran at both looks: who polls uses
less, and mostly sleeps."""
_LEAST_WANTED = 0.4
"""Used and waited for, where it ran or was ready to at both looks: others have the processors."""
_MOST_SLEEPS = 10.0
"""A second; who goes to sleep more often polls, and waits for a processor whenever it wakes up."""
_READY, _RUNS = "R", "running"
COMPUTES_S = 600.0
"""For how long who only computes is believed to come."""
LENT_S, LENT_STEPS = 60.0, 100
"""After how long, and how many median steps at least, a wait for a thread that sleeps is a hang."""
SYNCS_S = 120.0
"""The same of who waits for the disk, which no figure of the process shows."""
_IDLE = frozenset({"collective", "joining", "store", "stopped", "exiting", "gil", "lock", "sleep"})
"""Kinds of waits in which processor time is that of waiting, or of somebody else; so it is with a
wait for the device at one and the same line."""
_WAITS_FOR_CHILDREN = frozenset({"loader", "checkpoint", "idle", "waiting", "python"})
_FROM_A_THREAD = re.compile(
    r"is waiting (at a barrier|to be notified|for (a lock|an event|a condition|a semaphore|a future"
    r"|an item from a queue|room in a queue|a thread to end)(?! between))"
)
"""What another thread of the process may be to give."""
_BY_KERNEL = "medium: the kernel counts what is done, and not how much of it is left"
_BY_OTHERS = "low: that it waits for the thread that computes is a guess, as its agent was silent"
_BY_STACKS = "medium: by the stacks, which do not tell how long a sleep is"
_SYNCS = "is waiting for data to reach the disk"


def work_between(first: Backtrace, second: Backtrace, thread_id: int | None = None) -> Work | None:
    """What a process got done between two looks; None where they cannot be compared."""
    if first.work is None or second.work is None:
        return None
    passed_s = second.work.time_s - first.work.time_s
    before, after = (worker_of(look, thread_id) for look in (first, second))
    if passed_s <= 0 or before is None or after is None:
        return None
    is_same = before.thread_id == after.thread_id  # else the lock has gone from hand to hand
    known = is_same and before.cpu_s is not None and after.cpu_s is not None
    return Work(
        cpu=min(1.0, ((after.cpu_s or 0.0) - (before.cpu_s or 0.0)) / passed_s) if known else 0.0,
        children_cpu=_grown(first.work, second.work, "children_cpu_s") / passed_s,
        children_rate=_grown(first.work, second.work, "children_bytes") / passed_s,
        read_rate=_bytes(first.work, second.work, "read_bytes") / passed_s,
        written_rate=_bytes(first.work, second.work, "written_bytes") / passed_s,
        has_moved_on=_places(before.frames) != _places(after.frames),
        is_ready=is_same and _is_ready(before) and _is_ready(after),
        starved=_starved(before, after, passed_s) if is_same else 0.0,
        others_cpu=others_cpu(first, second, after) / passed_s if is_same else 0.0,
    )


def progress(evidence: RankEvidence) -> str | None:
    """What a rank has been doing, in words that fit behind `has been`; None where it stands still.

    The time goes where ``{}`` is.
    """
    work, doing = evidence.work, evidence.doing
    if work is None or doing is None or not evidence.is_alive:
        return None
    if doing.is_deadlock or doing.kind in {"stopped", "exiting"}:
        return None
    is_saving = doing.kind == "checkpoint"
    if work.written_rate >= LEAST_RATE:
        what = "writing a checkpoint" if is_saving else "writing"
        return f"{what}{{}} ({_rate(work.written_rate)})"
    if work.read_rate >= LEAST_RATE:
        what = "reading a checkpoint" if is_saving else "reading"
        return f"{what}{{}} ({_rate(work.read_rate)})"
    still_s = evidence.still_s or 0.0
    if doing.words.startswith(_SYNCS):
        return "waiting{} for its data to reach the disk" if still_s < SYNCS_S else None
    if still_s >= COMPUTES_S:
        return None
    least = _LEAST_CPU_MOVING if work.has_moved_on or work.is_ready else LEAST_CPU
    kind = doing.holder or doing.kind
    spins = kind == "device" and not work.has_moved_on
    is_starved = work.is_ready and work.cpu + work.starved >= _LEAST_WANTED
    if kind not in _IDLE and not spins and (work.cpu >= least or is_starved):
        whose = "waiting{} for a thread that computes" if doing.holder else "computing{}"
        used = f"{percent(work.cpu, digits=0)} of a processor"
        if work.cpu < least:
            used += f"; it waited for one for {percent(work.starved, digits=0)} of the time"
        return f"{whose} ({used})"
    if is_beside(evidence):
        used = f"({percent(work.others_cpu, digits=0)} of a processor)"
        return f"waiting{{}} while another thread of it computes {used}"
    return _work_of_children(work) if kind in _WAITS_FOR_CHILDREN else None


def without_starved(ranks: set[int], evidence: Mapping[int, RankEvidence]) -> set[int]:
    """Of these ranks, those that do not wait for a processor, if there are any.

    The others have not had their turn: nothing else keeps them, as far as can be seen.
    """
    works = {rank: evidence[rank].work for rank in ranks if rank in evidence}
    starved = {
        rank
        for rank, work in works.items()
        if work is not None and work.is_ready and work.starved >= _LEAST_WANTED
    }
    return ranks - starved or ranks


def _is_ready(thread: ThreadStack) -> bool:
    """Whether it runs or could, but for the agent, which holds the interpreter lock as it looks."""
    return thread.state == _READY or (thread.waiting or "").startswith(_RUNS)


def _starved(before: ThreadStack, after: ThreadStack, passed_s: float) -> float:
    """The share of the time in which a thread was ready to run and had no processor.

    0 where that is not known, and of one that keeps going to sleep.
    """
    if None in {before.ready_s, after.ready_s, before.sleeps, after.sleeps}:
        return 0.0
    if (after.sleeps or 0) - (before.sleeps or 0) > _MOST_SLEEPS * passed_s:
        return 0.0
    return max(0.0, (after.ready_s or 0.0) - (before.ready_s or 0.0)) / passed_s


def _work_of_children(work: Work) -> str | None:
    """What the processes do that a rank waits for; None where they stand still, too."""
    if work.children_cpu >= LEAST_CPU:
        used = f"compute ({percent(work.children_cpu, digits=0)} of a processor)"
    elif work.children_rate >= _LEAST_CHILDREN_RATE:
        used = f"read and write ({_rate(work.children_rate)})"
    else:
        return None
    return f"waiting{{}} for processes of its own, which {used}"


def is_beside(evidence: RankEvidence) -> bool:
    """Whether it waits for what another thread may give it, and nobody could tell for which."""
    work, doing = evidence.work, evidence.doing
    if work is None or doing is None or doing.holder is not None:
        return False
    return work.others_cpu >= LEAST_CPU and _FROM_A_THREAD.match(doing.words) is not None


def is_at_work(evidence: RankEvidence) -> bool:
    """Whether a rank gets on, by its record or by what the kernel counts."""
    return bool(evidence.moved) or progress(evidence) is not None


def is_asleep(evidence: RankEvidence) -> bool:
    """Whether it sleeps of its own will, and so for a time that it has chosen."""
    doing = evidence.doing
    if doing is None or doing.is_deadlock:
        return False
    return (doing.holder or doing.kind) == "sleep"


def how_sure(ranks: Sequence[RankEvidence]) -> str:
    """How sure it is that ranks whose record does not grow get on, or that they only sleep."""
    if not all(is_at_work(evidence) for evidence in ranks):
        return _BY_STACKS
    return _BY_OTHERS if any(is_beside(evidence) for evidence in ranks) else _BY_KERNEL


def is_held_up(evidence: RankEvidence) -> bool:
    """Whether it waits for a thread that sleeps, and for longer than such a wait is believed in.

    Who sleeps in a step that is measured in milliseconds does not hold a lock for a minute on
    purpose. One that is seen at another line than before gets on.
    """
    doing, still_s, usual_s = evidence.doing, evidence.still_s, evidence.median_step_s
    if doing is None or doing.holder != "sleep" or still_s is None or usual_s is None:
        return False
    if evidence.moved or (evidence.work is not None and evidence.work.has_moved_on):
        return False
    return still_s >= max(LENT_S, LENT_STEPS * usual_s)


def work_words(evidence: RankEvidence) -> str:
    """What a rank that gets on does, for how long and where, in words that fit behind its name."""
    since = f" for {seconds(evidence.still_s)}" if evidence.still_s is not None else ""
    text = progress(evidence)
    doing = evidence.doing
    at = f", at {doing.where}" if doing is not None and doing.where else ""
    if text is not None:
        return f"has been {text.format(since)}{at}"
    if evidence.moved:
        step = f", in step {evidence.step}" if evidence.step is not None else ""
        return f"goes on by its record{step}{at}"
    if doing is not None and doing.holder:
        return f"{doing.words.removesuffix(IT_WAITS)}; it has waited for that{since}{at}"
    return f"has been sleeping{since}{at}"


def _bytes(first: WorkDone, second: WorkDone, name: str) -> int:
    """How many bytes the threads have read or written that both looks have seen.

    One look may be the agent's and the other from outside, and of a thread that only one of them
    shows it is not known what it did in between.
    """
    before = {thread.thread_id: getattr(thread, name) for thread in first.threads}
    return sum(
        max(0, getattr(thread, name) - before[thread.thread_id])
        for thread in second.threads
        if thread.thread_id in before
    )


def _grown(first: WorkDone, second: WorkDone, name: str) -> float:
    """By how much a figure has grown; 0 where it is not known, or somebody has ended meanwhile."""
    before, after = getattr(first, name), getattr(second, name)
    return max(0.0, after - before) if before is not None and after is not None else 0.0


def _places(frames: tuple[Frame, ...]) -> tuple[tuple[str, int], ...]:
    """Where a thread is in the job's own code."""
    return tuple((frame.func, frame.lineno) for frame in own_frames(frames))


def _rate(value: float) -> str:
    return f"{size(value)}/s"
