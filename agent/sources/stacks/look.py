"""The stacks of all Python threads, taken by the agent's own thread.

Rules of this file: reads frames, never runs the threads' code, and touches their locals only when
asked to. The agent's own threads are left out: they are not the job's.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from collections.abc import Container
from types import CodeType, FrameType
from typing import NamedTuple

from .... import process
from ....stacks import complete, is_ours
from ....wire import Backtrace, Frame, Local, ThreadStack
from ....work_done import work_of
from ...safe_points import AGENT_THREAD_PREFIX
from ..numbers.values import read_locals
from .awaited import Waits, settled
from .tasks import take_tasks

_FRAMES_WITH_LOCALS = 100
"""How many frames of a stack, from the innermost on, are asked for their local variables."""


class _Place(NamedTuple):
    """One frame, as it was."""

    code: CodeType
    lineno: int
    locals: tuple[Local, ...] | None

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
    own = {t.ident for t in threading.enumerate() if t.name.startswith(AGENT_THREAD_PREFIX)}
    numbers = _numbers(own)
    before = _facts_of_waiting(own, numbers)
    # All frames first and at one go: what is read from files takes long enough for the threads
    # to move on, and a frame that has returned no longer knows who called it.
    frames = _frames(own)
    places = {ident: _places_of(frame, locals=locals) for ident, frame in frames.items()}
    awaited = Waits(frames, numbers).found() if before else {}
    tasks = take_tasks(frames, numbers, own)
    frames.clear()  # this very one may be among them, and would hold itself and all others
    main = threading.main_thread().ident
    stacks = [
        ThreadStack(
            thread_id=thread.native_id or 0,
            name=thread.name,
            is_main=thread.ident == main,
            daemon=thread.daemon,
            alive=thread.is_alive(),
            frames=tuple(place.frame() for place in places.get(thread.ident or 0, ())),
        )
        for thread in _threads(set(places))
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
        threads=complete(stacks, facts, by_agent=True),
        work=work_of(os.getpid(), facts),
        tasks=tasks,
    )


def _frames(own: Container[int | None]) -> dict[int, FrameType]:
    """The innermost frame of each of the job's threads."""
    return {i: frame for i, frame in sys._current_frames().items() if i not in own}


def _numbers(own: Container[int | None]) -> dict[int, int]:
    """The kernel numbers of the job's threads by those that Python gives them."""
    return {
        t.ident: t.native_id
        for t in threading.enumerate()
        if t.ident is not None and t.native_id is not None and t.ident not in own
    }


def _facts_of_waiting(
    own: Container[int | None], numbers: dict[int, int]
) -> dict[int, process.ThreadFacts]:
    """What the kernel tells of the threads that wait for what another one may have."""
    frames = _frames(own)
    waiting = Waits(frames, numbers).waiting()
    frames.clear()
    return process.threads(os.getpid(), waiting) if waiting else {}


def _places_of(frame: FrameType | None, *, locals: bool) -> list[_Place]:
    """The code and line of every frame of a stack, innermost first."""
    found: list[_Place] = []
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            with_locals = locals and len(found) < _FRAMES_WITH_LOCALS
            values = read_locals(frame) if with_locals else None
            found.append(_Place(frame.f_code, frame.f_lineno or 0, values))
        frame = frame.f_back
    return found


def _threads(idents: set[int]) -> list[threading.Thread]:
    """The job's threads: those that threading knows, and those that only have frames."""
    known = [t for t in threading.enumerate() if not t.name.startswith(AGENT_THREAD_PREFIX)]
    own = {t.ident for t in threading.enumerate()} - {t.ident for t in known}
    for ident in idents - {t.ident for t in known} - own:
        stranger = threading.Thread(name=f"thread {ident:#x}")
        stranger._ident = ident  # type: ignore[attr-defined]
        known.append(stranger)
    return known
