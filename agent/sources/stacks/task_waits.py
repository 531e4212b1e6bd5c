"""What tasks of asyncio wait for that another task has: its locks, and the end of a task.

Rules of this file: runs in the agent's thread and no code of the job's. A lock of asyncio does not
know who has it; a task that is inside a block which has taken that very object does. A condition,
an event and a semaphore belong to nobody, so nobody is named for them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from .bytecode import CodeReader
from .frame_values import line_of, local, lock_of, may_hold, own_attributes, value_of

_LOCKS = "/asyncio/locks.py"
UNKNOWN_OWNER = "whose owner is not known"


class _Holder(NamedTuple):
    """The task that has something.

    Attributes:
        words: How that is told, behind what it has.
    """

    task: int
    words: str


class TaskWaits:
    """The waits of all tasks at one moment.

    Args:
        frames: The frames of each task's coroutines, innermost first, by the task's ``id``.
        names: What each is called.
        awaited: The task whose end each waits for, where it does.
    """

    def __init__(
        self,
        frames: Mapping[int, Sequence[FrameType]],
        names: Mapping[int, str],
        awaited: Mapping[int, int],
    ) -> None:
        self._frames = frames
        self._names = names
        self._readers: dict[Any, CodeReader] = {}
        wanted = {task: lock for task in frames if (lock := self._wanted(task)) is not None}
        taken = self._taken() if wanted else {}
        self._holders = {task: taken.get(id(lock)) for task, lock in wanted.items()}
        self._next = {
            **awaited,
            **{task: one.task for task, one in self._holders.items() if one is not None},
        }

    def words(self, task: int) -> str:
        """Who has what a task waits for, behind the words for that; empty where nobody could."""
        found = []
        if task in self._holders:
            holder = self._holders[task]
            found.append(holder.words if holder is not None else UNKNOWN_OWNER)
        circle = self._circle(task)
        if circle:
            names = ", ".join(sorted(self._names[one] for one in circle))
            found.append(f"in a circle of tasks that wait for each other ({names})")
        return "".join(f", {words}" for words in found)

    def _wanted(self, task: int) -> Any:
        kind = getattr(sys.modules.get("asyncio.locks"), "Lock", ())
        for frame in self._frames[task]:
            code = frame.f_code
            if not code.co_filename.endswith(_LOCKS):
                return None
            if code.co_name == "acquire" and type(lock := local(frame, "self")) is kind:
                return lock if own_attributes(lock).get("_locked") else None
        return None

    def _taken(self) -> dict[int, _Holder]:
        """Who has taken which lock; none of those that several seem to have."""
        found: dict[int, _Holder] = {}
        several = set[int]()
        for task, frames in self._frames.items():
            lent = {id(lock_of(local(f, "self"))) for f in frames if _lends(f)}
            for frame in filter(may_hold, frames):
                if frame.f_code not in self._readers:
                    self._readers[frame.f_code] = CodeReader(frame.f_code)
                for taken in self._readers[frame.f_code].taken(frame.f_lasti):
                    held = id(lock_of(value_of(frame, taken.expression)))
                    if held in lent:
                        continue
                    if held in found and found[held].task != task:
                        several.add(held)
                    likely = "" if taken.is_certain else "most likely "
                    line = line_of(frame, taken.lineno)
                    words = f"{likely}held by task {self._names[task]} since {line}"
                    found[held] = _Holder(task, words)
        return {held: one for held, one in found.items() if held not in several}

    def _circle(self, task: int) -> list[int]:
        """The tasks that wait for each other, from this one on; none where they do not."""
        found = [task]
        while (after := self._next.get(found[-1])) is not None:
            if after == task:
                return found
            if after in found:
                return []
            found.append(after)
        return []


def _lends(frame: FrameType) -> bool:
    """Whether that is a condition's wait, which gives its lock back meanwhile."""
    return frame.f_code.co_name == "wait" and frame.f_code.co_filename.endswith(_LOCKS)
