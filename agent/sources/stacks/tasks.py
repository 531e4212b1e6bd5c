"""The stacks of what takes turns on threads: tasks of asyncio, and greenlets.

Rules of this file: runs in the agent's thread and no code of the job's: of a task only what its
own class in the standard library keeps is read. What waits has a frame but is on no thread's stack.
The agent's own tasks are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from ....messages.common import Frame, TaskStack
from ....safety.guard import OWN_LOOP
from ....safety.other_stacks import stack_of
from ....stacks.text import is_ours, task_stack
from ...eval.frame_names import locals_of
from .job_threads import JobThreads
from .task_waits import TaskWaits

_MOST_FRAMES = 100
_MOST_TASKS = 1000
_TRIES = 5
_WORDS = re.compile(r"(\D*)(\d{0,18})")
_WEAK_SETS = ("_all_tasks", "_scheduled_tasks", "_eager_tasks")
"""Where asyncio keeps its tasks, as of Python 3.10 to 3.13."""
_PARTS = {
    CoroutineType: ("cr_frame", "cr_await", "cr_running"),
    GeneratorType: ("gi_frame", "gi_yieldfrom", "gi_running"),
    AsyncGeneratorType: ("ag_frame", "ag_await", "ag_running"),
}
_LOOP_FRAME = ("asyncio/base_events.py", "run_forever")


def take_tasks(seen: JobThreads) -> tuple[TaskStack, ...]:
    """All tasks and greenlets that have begun and not ended."""
    return (*_asyncio_tasks(seen), *_greenlets())


def _asyncio_tasks(seen: JobThreads) -> Iterator[TaskStack]:
    module = sys.modules.get("asyncio.tasks")
    if module is None:
        return
    kind = module.Task
    tasks = _of_job(_all_tasks(module, seen.frames), kind, seen)
    frames = {id(task): list(_frames_of(kind.get_coro(task))) for task in tasks}
    names = {id(task): str(kind.get_name(task)) for task in tasks}
    awaits = {id(task): id(after) for task in tasks if id(after := task._fut_waiter) in names}
    waits = TaskWaits(frames, names, awaits)
    for task in tasks:
        ident = _thread_of(kind.get_loop(task))
        coroutine, awaited = kind.get_coro(task), task._fut_waiter
        if _is_running(coroutine):
            words = "running"
        elif awaited is None:
            words = "about to run, once its event loop comes to it"
        elif issubclass(type(awaited), kind):
            words = f"waiting for task {kind.get_name(awaited)}"
        else:
            words = "waiting for a future"
        yield task_stack(
            kind="asyncio",
            name=names[id(task)],
            thread_id=seen.numbers.get(ident or 0, 0),
            frames=[_frame(frame) for frame in frames[id(task)]],
            otherwise=words,
            owner=waits.words(id(task)),
        )


def _of_job(tasks: list[object], kind: Any, seen: JobThreads) -> list[Any]:
    """The job's tasks that have not ended, in the order of their names, numbers as numbers.

    asyncio keeps them in sets: with the next look their order would be another one.
    """
    found = [
        task
        for task in tasks
        if issubclass(type(task), kind)
        and not kind.done(task)
        and not hasattr(kind.get_loop(task), OWN_LOOP)
        and _thread_of(kind.get_loop(task)) not in seen.own
    ]
    return sorted(found, key=lambda task: (_natural(str(kind.get_name(task))), id(task)))[
        :_MOST_TASKS
    ]


def _natural(name: str) -> list[tuple[str, int]]:
    """What sorts `Task-9` before `Task-10`."""
    return [(text, int(number or 0)) for text, number in _WORDS.findall(name)]


def _thread_of(loop: object) -> int | None:
    """The thread that an event loop runs on, by its number in Python."""
    found: int | None = getattr(loop, "_thread_id", None)
    return found


def _all_tasks(module: Any, frames: Mapping[int, FrameType]) -> list[Any]:
    found: dict[int, Any] = {}
    for name in _WEAK_SETS:
        for _ in range(_TRIES):
            try:
                tasks = list(getattr(module, name, ()))
            except RuntimeError:  # another thread has made one meanwhile
                continue
            found.update((id(task), task) for task in tasks)
            break
    if sys.version_info >= (3, 14):  # they are in lists of C code, by their loops
        for loop in _loops(frames):
            found.update((id(task), task) for task in module.all_tasks(loop))
    return list(found.values())


def _loops(frames: Mapping[int, FrameType]) -> Iterator[Any]:
    for innermost in frames.values():
        for frame in stack_of(innermost):
            file, func = _LOOP_FRAME
            if frame.f_code.co_name == func and frame.f_code.co_filename.endswith(file):
                yield locals_of(frame).get("self")


def _is_running(coroutine: object) -> bool:
    parts = _PARTS.get(type(coroutine))
    return parts is not None and bool(getattr(coroutine, parts[2]))


def _frames_of(coroutine: object) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it awaits, innermost first."""
    found: list[FrameType] = []
    for _ in range(_MOST_FRAMES):
        parts = _PARTS.get(type(coroutine))
        frame = getattr(coroutine, parts[0]) if parts is not None else None
        if parts is None or frame is None:
            break
        found.append(frame)
        coroutine = getattr(coroutine, parts[1])
    return reversed(found)


def _greenlets() -> Iterator[TaskStack]:
    """The greenlets that have begun and wait for their turn."""
    kind: Any = getattr(sys.modules.get("greenlet"), "greenlet", None)
    if kind is None:
        return
    from ..storage.living import living

    for greenlet in living([kind])[0][:_MOST_TASKS]:
        frame = kind.gr_frame.__get__(greenlet)
        if frame is None:  # it runs, has not begun, or has ended
            continue
        is_first = kind.parent.__get__(greenlet) is None
        name = "the first one" if is_first else f"{type(greenlet).__name__} {id(greenlet):#x}"
        yield task_stack(
            kind="greenlet",
            name=name,
            frames=[
                _frame(one)
                for one in stack_of(frame, _MOST_FRAMES)
                if not is_ours(one.f_code.co_filename)
            ],
            otherwise="waiting for its turn",
        )


def _frame(frame: FrameType) -> Frame:
    code = frame.f_code
    func = getattr(code, "co_qualname", code.co_name)  # 3.11 and newer know the class
    return Frame(func=func, file=code.co_filename, lineno=frame.f_lineno or 0)
