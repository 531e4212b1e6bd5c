"""Stacks of many ranks, merged into classes of equal ones.

Rules of this file: pure. Two stacks are equal when they go through the same functions of the same
files; line numbers are kept where they agree, and tell stacks apart only when that is asked for.
Names of functions are compared without their classes and files of libraries without where they
are installed, since not every way to a stack and not every machine tells these. Frames of C
functions are left out unless they are asked for: not every way to a stack sees them. Pool threads
without work are counted and left out. Of several looks, the last one says where a thread is, and
the others whether it moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...messages.common import Backtrace, Frame, ThreadStack
from ...messages.frozen import dataclass
from ...stacks import waits
from .naming import Rank, in_order

MAIN = "MainThread"
_DIGITS = re.compile(r"\d+")
_IDLE = "idle"
_IDLE_FILES = ("tqdm/_monitor.py",)
"""Files whose threads only wake up now and then."""
_PLUMBING = frozenset({"<frozen runpy>", "runpy.py", "torch/distributed/c10d_logger.py"})
"""Files whose frames stand between those of the job, and say nothing about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """What was seen of one rank.

    Attributes:
        looks: Its stacks, one for each look that gave some, oldest first.
        why: Why there are none, or how they were had; None when there is nothing to say.
    """

    rank: Rank
    looks: tuple[Backtrace, ...] = ()
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFrame:
    """One frame of all stacks of a class.

    Attributes:
        func: The function, with its class where one is known.
        file: Its file; that of a library from the library's folder on.
        linenos: The lines that are being executed, in order; empty where unknown.
        line: The text of the line, where there is one line.
        is_own: Whether it is the job's own code, and no library's.
    """

    func: str
    file: str
    linenos: tuple[int, ...] = ()
    line: str | None = None
    kind: str = "python"
    is_own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StackClass:
    """Threads of one role that are at the same place.

    Attributes:
        thread: The role: the thread's name, its numbers written as N.
        frames: Outermost first.
        threads: How many threads; a rank may have several.
        waiting: What they wait for or do, in words, the most frequent first.
        same: The ranks where every look showed the very same lines.
        moving: The ranks where the looks differ; both are empty after a single look.
    """

    thread: str
    ranks: tuple[Rank, ...]
    frames: tuple[MergedFrame, ...]
    threads: int
    waiting: tuple[str, ...] = ()
    same: tuple[Rank, ...] = ()
    moving: tuple[Rank, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedStacks:
    """The stacks of a job.

    Attributes:
        classes: The main threads first; of one role the smallest class first.
        asked: All ranks.
        without: The ranks without a stack, and why each has none.
        remarks: How the stacks of other ranks were had, where that is worth a sentence.
        idle_threads: How many threads of pools without work were left out.
        idle_ranks: Whose.
        looks: How many times the ranks were looked at.
    """

    classes: tuple[StackClass, ...]
    asked: tuple[Rank, ...]
    without: tuple[tuple[Rank, str], ...] = ()
    remarks: tuple[tuple[Rank, str], ...] = ()
    idle_threads: int = 0
    idle_ranks: tuple[Rank, ...] = ()
    looks: int = 1


class _Key(NamedTuple):
    """What frames of one class have in common."""

    func: str
    file: str
    lineno: int


class _Seen(NamedTuple):
    """One thread of one rank, as the last look showed it."""

    rank: Rank
    thread: ThreadStack
    frames: tuple[Frame, ...]
    is_same: bool


def merge_stacks(
    ranks: Sequence[RankStacks], *, looks: int = 1, by_line: bool = False, native: bool = False
) -> MergedStacks:
    """Put the stacks of all ranks together.

    Args:
        looks: How many times the ranks were looked at.
        by_line: Whether another line makes another class.
        native: Whether frames of C functions count.
    """
    groups: dict[tuple[str, tuple[_Key, ...]], list[_Seen]] = {}
    idle: list[Rank] = []
    for seen in _all_seen(ranks, native=native):
        if _is_idle(seen.thread):
            idle.append(seen.rank)
            continue
        keys = tuple(_key(frame, by_line=by_line) for frame in seen.frames)
        groups.setdefault((_role(seen.thread), keys), []).append(seen)
    classes = [_class_of(role, members, looks) for (role, _), members in groups.items()]
    return MergedStacks(
        classes=tuple(sorted(classes, key=_place)),
        asked=in_order(one.rank for one in ranks),
        without=tuple((r.rank, r.why or "it has no Python thread") for r in ranks if _is_bare(r)),
        remarks=tuple((r.rank, r.why) for r in ranks if r.why and not _is_bare(r)),
        idle_threads=len(idle),
        idle_ranks=in_order(idle),
        looks=looks,
    )


def _is_bare(rank: RankStacks) -> bool:
    """Whether nothing was seen of a rank."""
    return not rank.looks or not any(thread.frames for thread in rank.looks[-1].threads)


def _all_seen(ranks: Iterable[RankStacks], *, native: bool) -> Iterable[_Seen]:
    """Every thread that has frames."""
    for rank in ranks:
        if not rank.looks:
            continue
        last, before = rank.looks[-1], rank.looks[:-1]
        for thread in last.threads:
            frames = _frames(thread, native=native)
            if frames:
                signs = {_sign(_same_thread(look, thread), native=native) for look in before}
                is_same = signs <= {_sign(thread, native=native)}
                yield _Seen(rank.rank, thread, frames, is_same)


def _same_thread(look: Backtrace, thread: ThreadStack) -> ThreadStack | None:
    return next((t for t in look.threads if t.thread_id == thread.thread_id), None)


def _frames(thread: ThreadStack, *, native: bool) -> tuple[Frame, ...]:
    """The frames that count, outermost first."""
    counting = (f for f in reversed(thread.frames) if native or f.kind != "native")
    return tuple(frame for frame in counting if short_file(frame.file) not in _PLUMBING)


def _sign(thread: ThreadStack | None, *, native: bool) -> tuple[_Key, ...] | None:
    if thread is None:
        return None
    return tuple(_key(frame, by_line=True) for frame in _frames(thread, native=native))


def _key(frame: Frame, *, by_line: bool) -> _Key:
    func = frame.func.rpartition(".")[2] if frame.kind == "python" else frame.func
    return _Key(func, short_file(frame.file), frame.lineno if by_line else 0)


def short_file(file: str) -> str:
    """A library's file from the library's folder on; another one as it is."""
    return waits.library_path(file) or file


def _role(thread: ThreadStack) -> str:
    return MAIN if thread.is_main else _DIGITS.sub("N", thread.name)


def _is_idle(thread: ThreadStack) -> bool:
    """Whether a thread is one of a pool, or of a library, that has nothing to do."""
    if thread.is_main:
        return False
    if (thread.waiting or "").startswith(_IDLE):
        return True
    return any(short_file(frame.file) in _IDLE_FILES for frame in thread.frames)


def _class_of(role: str, members: Sequence[_Seen], looks: int) -> StackClass:
    """One class from the threads that belong to it."""
    counts: dict[str, int] = {}
    for seen in members:
        if seen.thread.waiting:
            counts[seen.thread.waiting] = counts.get(seen.thread.waiting, 0) + 1
    moving = {seen.rank for seen in members if not seen.is_same}
    ranks = in_order(seen.rank for seen in members)
    told = looks > 1
    return StackClass(
        thread=role,
        ranks=ranks,
        frames=tuple(_merged(frames) for frames in zip(*(s.frames for s in members), strict=True)),
        threads=len(members),
        waiting=tuple(sorted(counts, key=lambda words: -counts[words])),
        same=tuple(rank for rank in ranks if rank not in moving) if told else (),
        moving=in_order(moving) if told else (),
    )


def _merged(frames: Sequence[Frame]) -> MergedFrame:
    """The same frame of several stacks."""
    linenos = tuple(sorted({frame.lineno for frame in frames if frame.lineno}))
    lines = {frame.line.strip() for frame in frames if frame.line and frame.line.strip()}
    return MergedFrame(
        func=max((frame.func for frame in frames), key=len),
        file=short_file(frames[0].file),
        linenos=linenos,
        line=lines.pop() if len(lines) == 1 and len(linenos) == 1 else None,
        kind=frames[0].kind,
        is_own=frames[0].kind == "python" and waits.library_path(frames[0].file) is None,
    )


def _place(one: StackClass) -> tuple[bool, str, int, str]:
    """A class's place in the order: main threads, then by role; the smallest first."""
    is_other = one.thread != MAIN
    return (is_other, one.thread if is_other else "", len(one.ranks), str(one.ranks[0]))
