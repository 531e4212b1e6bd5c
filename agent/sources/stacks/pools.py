"""What threads wait for that a `ThreadPoolExecutor` is to bring: the result of a task.

Rules of this file: runs in the agent's thread and no code of the job's. Which task a worker runs
and which are queued is read where the pool keeps it: in the frame of the worker's loop, and in the
queue that this reads from.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from .frame_values import local, own_attributes

_WAIT = threading.Condition.wait.__code__
_EVENT_WAIT = threading.Event.wait.__code__
_RESULTS = ("result", "exception")
_SEVERAL = {"wait": "fs", "as_completed": "pending"}
"""The functions that wait for several futures, and the local variables that have those."""
_ENDED = frozenset({"CANCELLED", "CANCELLED_AND_NOTIFIED", "FINISHED"})
_MOST_WRAPPERS = 8


class Futures(NamedTuple):
    """The futures that a thread waits for, which have not ended.

    Attributes:
        needs_all: Whether it waits for each of them; else for any.
    """

    pending: tuple[Any, ...]
    needs_all: bool


class Task(NamedTuple):
    """A task of a pool whose result is waited for.

    Attributes:
        name: Its function.
        owner: The Python number of the thread that runs it, or that must be free first.
        is_queued: Whether no worker has begun with it.
        running: How many tasks its pool runs, where it is queued and any of them may end first.
    """

    name: str
    owner: int | None
    is_queued: bool = False
    running: int = 0


class _Worker(NamedTuple):
    """A thread of a pool.

    Attributes:
        queue: Where it takes its tasks from.
        item: The one that it runs; None between two.
        most: How many threads its pool may have; None where nobody can give it a task any more.
    """

    ident: int
    queue: Any
    item: Any
    most: int | None


def awaited_futures(frames: Sequence[FrameType]) -> Futures | None:
    """The futures that a thread waits for; None where it does something else."""
    if len(frames) < 2 or frames[0].f_code is not _WAIT:
        return None
    module = sys.modules.get("concurrent.futures._base")
    kind = getattr(module, "Future", None)
    if kind is None:
        return None
    codes = [getattr(getattr(kind, name, None), "__code__", None) for name in _RESULTS]
    if frames[1].f_code in codes:
        future = local(frames[1], "self")
        return Futures((future,), needs_all=True) if issubclass(type(future), kind) else None
    if len(frames) < 3 or frames[1].f_code is not _EVENT_WAIT:
        return None
    for function, variable in _SEVERAL.items():
        if frames[2].f_code is getattr(getattr(module, function), "__code__", None):
            found = local(frames[2], variable)
            these = tuple(found) if type(found) is set else ()
            pending = tuple(
                [one for one in these if own_attributes(one).get("_state") not in _ENDED]
            )
            needs_all = local(frames[2], "return_when") == "ALL_COMPLETED"
            return Futures(pending, needs_all or len(pending) == 1)
    return None


class Pools:
    """The tasks of all pools at one moment.

    Args:
        stacks: The frames of each thread by its Python number, innermost first.
    """

    def __init__(self, stacks: Mapping[int, Sequence[FrameType]]) -> None:
        self._stacks = stacks
        loop = getattr(sys.modules.get("concurrent.futures.thread"), "_worker", None)
        code: CodeType | None = getattr(loop, "__code__", None)
        self._workers = [
            _worker(ident, frame)
            for ident, frames in stacks.items()
            for frame in frames[-_MOST_WRAPPERS:]
            if code is not None and frame.f_code is code
        ]

    def task_of(self, future: object) -> Task | None:
        """The task that a future is the result of; None where no pool of threads has it."""
        for worker in self._workers:
            if worker.item is not None and own_attributes(worker.item).get("future") is future:
                return Task(_name(worker.item), worker.ident)
        for queue in {id(worker.queue): worker.queue for worker in self._workers}.values():
            for item in _queued(queue):
                if own_attributes(item).get("future") is future:
                    return self._behind(item, queue)
        return None

    def process_task_of(self, future: object) -> tuple[str, list[int]] | None:
        """The task of a pool of processes that a future is the result of, and their numbers."""
        run = getattr(
            getattr(sys.modules.get("concurrent.futures.process"), "_ExecutorManagerThread", None),
            "run",
            None,
        )
        code = getattr(run, "__code__", None)
        for frames in self._stacks.values() if code is not None else ():
            for frame in frames[-_MOST_WRAPPERS:]:
                own = own_attributes(local(frame, "self")) if frame.f_code is code else {}
                items = own.get("pending_work_items")
                for item in list(items.values()) if type(items) is dict else ():
                    if own_attributes(item).get("future") is future:
                        processes = own.get("processes")
                        return _name(item), sorted(processes) if type(processes) is dict else []
        return None

    def _behind(self, item: object, queue: object) -> Task:
        """A task that is queued: who must be free first, where that is known."""
        workers = [worker for worker in self._workers if worker.queue is queue]
        most = workers[0].most
        is_full = most is None or len(workers) >= most
        is_stuck = len(workers) == 1 or all(self._waits_for(queue, worker) for worker in workers)
        owner = workers[0].ident if is_full and is_stuck else None
        return Task(_name(item), owner, is_queued=True, running=len(workers))

    def _waits_for(self, queue: object, worker: _Worker) -> bool:
        """Whether a worker waits for a task that is queued in its own pool."""
        found = awaited_futures(self._stacks[worker.ident])
        if found is None or not found.pending:
            return False
        queued = {id(own_attributes(item).get("future")) for item in _queued(queue)}
        waits = [id(future) in queued for future in found.pending]
        return any(waits) if found.needs_all else all(waits)

    def after(self, ident: int, task: Task) -> Task:
        """A queued task as one of its pool's own workers waits for it: behind the next one's."""
        own = next((worker for worker in self._workers if worker.ident == ident), None)
        if own is None or not task.is_queued or task.owner is None:
            return task
        those = [worker.ident for worker in self._workers if worker.queue is own.queue]
        if task.owner not in those:
            return task
        return task._replace(owner=those[(those.index(ident) + 1) % len(those)])


def _worker(ident: int, frame: FrameType) -> _Worker:
    """What the loop of a pool's thread knows."""
    reference = local(frame, "executor_reference")
    executor = reference() if reference is not None else None
    most = own_attributes(executor).get("_max_workers") if executor is not None else None
    queue, item = local(frame, "work_queue"), local(frame, "work_item")
    return _Worker(ident, queue, item, most)


def _queued(queue: object) -> Iterator[Any]:
    """The tasks in a queue of C, which nobody can look into but the garbage collector."""
    kind = getattr(sys.modules.get("concurrent.futures.thread"), "_WorkItem", ())
    found = gc.get_referents(queue)
    lists = [one for one in found if type(one) is list]
    for one in (*found, *(item for items in lists for item in items)):
        if type(one) is kind:
            yield one


def _name(item: object) -> str:
    own = own_attributes(item)
    task = own.get("task")
    function = task[0] if type(task) is tuple and task else own.get("fn")
    for _ in range(_MOST_WRAPPERS):
        if type(function) is functools.partial:
            function = function.func
        elif type(function) is MethodType:
            function = function.__func__
    if isinstance(function, (FunctionType, BuiltinFunctionType)):
        return function.__name__
    return type(function).__name__
