"""The stacks of all Python threads, taken by the agent's own thread.

Rules of this file: reads frames, never runs the threads' code, and touches their locals only when
asked to. The agent's own threads are left out: they are not the job's.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

from ....linux import process
from ....messages.common import Backtrace, Frame, Local, ThreadStack
from ....stacks.source_lines import Span
from ....stacks.text import complete, is_ours
from ....stacks.work_done import work_of
from ..numbers.values import read_locals
from .awaited import Waits, settled
from .job_threads import job_threads
from .tasks import take_tasks

_UNIT = 2
"""Bytes of one instruction."""
_HEAD = 8
"""How many of the innermost frames tell whether a thread is still where it was."""
_FRAMES_WITH_LOCALS = 100
"""How many frames of a stack, from the innermost on, are asked for their local variables."""


_Head: TypeAlias = "tuple[tuple[CodeType, int], ...]"


class _Place(NamedTuple):
    """One frame, as it was."""

    code: CodeType
    lineno: int
    lasti: int
    locals: tuple[Local, ...] | None

    def span(self) -> Span | None:
        """Where the instruction's expression stands; None where that is not known."""
        positions = getattr(self.code, "co_positions", None)
        if positions is None or self.lasti < 0:
            return None
        first, last, column, end = next(
            itertools.islice(positions(), self.lasti // _UNIT, None), (None,) * 4
        )
        if first is None or last is None or column is None or end is None:
            return None
        return Span(first, last, column, end)

    def frame(self) -> Frame:
        """The frame as it travels."""
        func = getattr(self.code, "co_qualname", self.code.co_name)  # 3.11 and newer know the class
        file = self.code.co_filename
        return Frame(func=func, file=file, lineno=self.lineno, locals=self.locals)


def take_backtrace(*, locals: bool = False) -> Backtrace:
    """The stack of every Python thread now, main thread first.

    Args:
        locals: Also short texts of the local variables.
    """
    before = _facts_of_waiting()
    # All frames first and at one go: what is read from files takes long enough for the threads
    # to move on.
    seen = job_threads()
    heads = {ident: _head_of(stack) for ident, stack in seen.stacks.items()}
    places = {ident: _places_of(stack, locals=locals) for ident, stack in seen.stacks.items()}
    awaited = Waits(seen.frames, seen.numbers).found() if before else {}
    tasks = take_tasks(seen)
    seen.stacks.clear()  # this very one may be among them, and would hold itself and all others
    stacks = [
        ThreadStack(
            thread_id=thread.number,
            name=thread.name,
            is_main=thread.is_main,
            daemon=thread.daemon,
            alive=thread.is_alive,
            frames=tuple([place.frame() for place in places.get(thread.ident, ())]),
        )
        for thread in seen.threads
    ]
    facts = process.threads(os.getpid(), {stack.thread_id for stack in stacks})
    stacks = [
        dataclasses.replace(stack, awaits=settled(awaited[n], before.get(n), facts.get(n)))
        if (n := stack.thread_id) in awaited
        else stack
        for stack in stacks
    ]
    return Backtrace(
        pid=os.getpid(),
        source="agent",
        threads=complete(
            stacks,
            _of_then(facts, heads),
            by_agent=True,
            spans=_spans_of(places, seen.numbers),
        ),
        work=work_of(os.getpid(), facts),
        tasks=tasks,
    )


def _facts_of_waiting() -> dict[int, process.ThreadFacts]:
    """What the kernel tells of the threads that wait for what another one may have."""
    seen = job_threads()
    waiting = Waits(seen.frames, seen.numbers).waiting()
    seen.stacks.clear()
    return process.threads(os.getpid(), waiting) if waiting else {}


def _of_then(
    facts: dict[int, process.ThreadFacts], heads: dict[int, _Head]
) -> dict[int, process.ThreadFacts]:
    """What the kernel tells, but for what it tells of another moment than the frames are of.

    A thread that has gone on since then has run: where it waits by now belongs to other frames.

    Args:
        facts: By the kernel's numbers.
        heads: By the interpreter's, as they were then.
    """
    seen = job_threads()
    now = {ident: _head_of(stack) for ident, stack in seen.stacks.items()}
    seen.stacks.clear()  # this very one may be among them
    told = dict(facts)
    for ident, number in seen.numbers.items():
        if number in told and ident in heads and now.get(ident) != heads[ident]:
            told[number] = told[number]._replace(state="R", call=None, wchan=None)
    return told


def _spans_of(places: dict[int, list[_Place]], numbers: Mapping[int, int]) -> dict[int, Span]:
    """Where in its source the innermost frame of each thread is, by the kernel's number.

    None of those whose interpreter keeps no columns: before 3.11, or by `-X no_debug_ranges`.
    """
    inner = {numbers[i]: found[0] for i, found in places.items() if found and i in numbers}
    spans = ((number, place.span()) for number, place in inner.items())
    return {number: span for number, span in spans if span is not None}


def _head_of(stack: list[FrameType]) -> _Head:
    """Where a thread is: its innermost frames and the instruction that each is at."""
    return tuple([(one.f_code, one.f_lasti) for one in stack[:_HEAD]])


def _places_of(stack: list[FrameType], *, locals: bool) -> list[_Place]:
    """The code and line of every frame of a stack, innermost first."""
    found: list[_Place] = []
    for one in stack:
        if not is_ours(one.f_code.co_filename):
            with_locals = locals and len(found) < _FRAMES_WITH_LOCALS
            values = read_locals(one) if with_locals else None
            found.append(_Place(one.f_code, one.f_lineno or 0, one.f_lasti, values))
    return found
