"""What threads wait for that somebody has: locks, imports, tasks, notices, ends of threads.

Rules of this file: runs in the agent's thread and no code of the job's: attributes are read where
they are stored, and an owner is known by the lock itself, or by a thread that is inside a block
which has taken that very object. What is not known so is not said, but for who gives a notice,
which is said to be likely. A wait counts as settled only
where the kernel has not run the thread between two looks: then all that was seen of it in between
was so at one and the same moment.
"""

from __future__ import annotations

import _thread
import dataclasses
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from ....linux.process import ThreadFacts
from ....messages.common import Awaited
from .bytecode import CodeReaders, Taken
from .coroutines import coroutine_of
from .frame_values import line_of, local, lock_of, may_hold, outwards, own_attributes, value_of
from .notices import Notice, Notices, permits_of
from .pools import Futures, Pools, Task, awaited_futures

_LOCK, _RLOCK = _thread.LockType, _thread.RLock
_OWNER = re.compile(r"<locked _thread\.RLock object owner=(\d+) ")
_IMPORTLIB = "<frozen importlib"
_IMPORT_MODULE = "/importlib/__init__.py"
_SHARED_FILE = "/multiprocessing/synchronize.py"
_UNKNOWN_OWNER = "whose owner is not known"
_UNKNOWN_HOLDERS = "whose holders are not known"
_ANOTHER_PROCESS = "held by another process, and by which is not known"
_MOST_NAMED = 3
_WAIT = threading.Condition.wait.__code__
_JOINS = frozenset(
    method.__code__
    for name in ("join", "_wait_for_tstate_lock")
    if (method := getattr(threading.Thread, name, None)) is not None
)


class _Wait(NamedTuple):
    """What a thread waits for.

    Attributes:
        kind: See `Awaited`.
        owner: The Python number of the thread that has it, where the thing itself says so.
        lock: The lock, if it is one.
        module: The module whose import it is, if it is one.
        who: See `Awaited`.
        notice: What it is to be told, if it is that.
    """

    kind: str
    what: str
    owner: int | None = None
    lock: Any = None
    module: str | None = None
    who: str | None = None
    notice: Notice | None = None


class _Held(NamedTuple):
    """Who has something, and since where; in words, where that is none of the threads here."""

    ident: int | None
    since: str | None = None
    is_certain: bool = True
    who: str | None = None


class Waits:
    """The waits of all threads at one moment.

    Args:
        frames: The innermost frame of each thread by its Python number.
        numbers: Their kernel numbers.
    """

    def __init__(self, frames: Mapping[int, FrameType], numbers: Mapping[int, int]) -> None:
        self._stacks = {ident: list(outwards(frame)) for ident, frame in frames.items()}
        self._numbers = numbers
        self._reader = CodeReaders().of  # no method of this object: it would keep all frames
        self._taken: dict[int, list[tuple[int, FrameType, Taken]]] | None = None
        self._pools = Pools(self._stacks)
        self._notices = Notices(self._stacks, numbers, self._reader)

    def waiting(self) -> set[int]:
        """The kernel numbers of the threads that wait for what somebody may have."""
        return {n for ident, n in self._numbers.items() if self._wait_of(ident) is not None}

    def found(self) -> dict[int, Awaited]:
        """What each of them waits for, by its kernel number."""
        return {
            number: self._awaited(ident, wait)
            for ident, number in self._numbers.items()
            if (wait := self._wait_of(ident)) is not None
        }

    def _awaited(self, ident: int, wait: _Wait) -> Awaited:
        notice = wait.notice
        held = self._holder(ident, wait) if notice is None else self._teller(ident, notice)
        return Awaited(
            kind=wait.kind,
            what=wait.what,
            holder_id=self._numbers.get(held.ident or 0),
            since=held.since,
            is_certain=held.is_certain,
            who=held.who,
        )

    def _wait_of(self, ident: int) -> _Wait | None:
        """What the innermost frame of a thread waits for."""
        frames = self._stacks.get(ident, [])
        inner = frames[0] if frames else None
        if inner is None or _awaits_notice(inner):
            return self._told(ident, frames)
        if inner.f_code in _JOINS:
            return _join(local(inner, "self"))
        if inner.f_code.co_filename.startswith(_IMPORTLIB):
            return _import(local(inner, "self"))
        expression = self._reader(inner).awaited(inner.f_lasti)
        lock: Any = None if expression is None else lock_of(value_of(inner, expression))
        if type(lock) not in {_LOCK, _RLOCK} and not _is_shared(lock):
            return None
        file = inner.f_code.co_filename
        if len(frames) > 1 and (file == threading.__file__ or file.endswith(_SHARED_FILE)):
            expression = self._reader(frames[1]).awaited(frames[1].f_lasti) or expression
        if not _is_shared(lock):
            return _Wait("lock", f"the lock {expression}", owner=_owner(lock), lock=lock)
        kind = "lock" if lock.maxvalue == 1 else "semaphore"
        return _Wait(kind, f"the {kind} {expression} between processes", lock=lock)

    def _told(self, ident: int, frames: Sequence[FrameType]) -> _Wait | None:
        """The wait for a result or a notice, by which no lock is taken."""
        futures = awaited_futures(frames)
        result = self._result(ident, futures) if futures is not None else None
        notice = self._notices.sought(ident) if result is None else None
        if notice is None:
            return result
        if notice.kind == "semaphore":
            return _Wait(notice.kind, notice.what, lock=notice.thing)
        return _Wait(notice.kind, notice.what, notice=notice)

    def _result(self, ident: int, futures: Futures) -> _Wait | None:
        """The wait for one or several futures; None where nothing is known of them."""
        found = [wait for one in futures.pending if (wait := self._future(ident, one)) is not None]
        many = len(futures.pending)
        if not found or many == 1:
            return found[0] if found else None
        queued = [wait for wait in found if wait.kind == "queued" and wait.owner]
        run = [wait for wait in found if wait.kind != "queued" and wait.owner]
        run.sort(key=lambda wait: self._numbers.get(wait.owner or 0, 0))  # they stand in a set
        first = (*queued, *run, *found)[0]
        if futures.needs_all or len(queued) == many:
            return first._replace(what=f"{first.what} (one of {many} that are not done)")
        texts = [
            f"{wait.what} is run by thread {self._numbers.get(wait.owner or 0, 'unknown')}"
            for wait in run[:_MOST_NAMED]
        ]
        texts += [f"{many - len(run)} are not begun"] if many > len(run) else []
        owner = run[0].owner if run else None
        return _Wait("any", f"any of {many} tasks", owner=owner, who=f"of which {', '.join(texts)}")

    def _future(self, ident: int, future: object) -> _Wait | None:
        """The wait for a future that is the result of a pool's task or of a coroutine."""
        task = self._pools.task_of(future)
        if task is not None:
            return self._task(ident, task)
        coroutine = coroutine_of(future, self._stacks)
        if coroutine is not None:
            name = f"the coroutine {coroutine.name}"
            return _Wait("coroutine", name, owner=coroutine.owner, who=coroutine.who)
        beside = self._pools.process_task_of(future)
        if beside is None:
            return None
        name, numbers = beside
        pids = ", ".join(map(str, numbers[:_MOST_NAMED]))
        return _Wait("process", f"the task {name}", who=f"which its pool of processes has ({pids})")

    def _task(self, ident: int, task: Task) -> _Wait:
        """The wait for a task of a pool of threads."""
        task, what = self._pools.after(ident, task), f"the task {task.name}"
        if not task.is_queued:
            return _Wait("task", what, owner=task.owner)
        who = None if task.owner else f"queued behind the {task.running} that its pool runs"
        return _Wait("queued", what, owner=task.owner, who=who)

    def _teller(self, ident: int, notice: Notice) -> _Held:
        """Who gives a thread its notice, by the code that runs."""
        found = self._notices.teller(ident, notice)
        return _Held(found.ident, found.since, is_certain=False, who=found.who)

    def _sharing(self, semaphore: object) -> _Held:
        """Who has a semaphore: certain only where all are known that can have it."""
        found = self._holding(semaphore)
        if not found:
            return _Held(None, who=_UNKNOWN_HOLDERS)
        if len({ident for ident, _, _ in found}) == 1:
            ident, frame, taken = found[0]
            permits = permits_of(semaphore)
            is_all = permits is not None and len(found) >= permits
            return _Held(ident, line_of(frame, taken.lineno), is_all and taken.is_certain)
        texts = [
            f"thread {self._numbers.get(ident, 'unknown')} since {line_of(frame, taken.lineno)}"
            for ident, frame, taken in found[:_MOST_NAMED]
        ]
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        return _Held(None, who=f"held by {', '.join(texts)}{more}")

    def _holder(self, waiter: int, wait: _Wait) -> _Held:
        """Who has what a thread waits for."""
        if wait.module is not None:
            return _Held(wait.owner, self._importing(wait.owner, wait.module))
        if wait.lock is None:
            return _Held(wait.owner, who=wait.who)
        if wait.kind == "semaphore" and not _is_shared(wait.lock):
            return self._sharing(wait.lock)
        if not _is_locked(wait.lock):
            return _Held(None)
        if wait.kind == "semaphore":
            return _Held(None, who=_UNKNOWN_HOLDERS)
        found = self._holding(wait.lock)
        if _is_shared(wait.lock) and not wait.lock._count():
            return _Held(None, who=_ANOTHER_PROCESS)
        if wait.owner:
            found = [one for one in found if one[0] == wait.owner]
        if len({ident for ident, _, _ in found}) != 1:
            return _Held(wait.owner, who=None if wait.owner else _UNKNOWN_OWNER)
        ident, frame, taken = found[0]
        since = line_of(frame, taken.lineno)
        # An attribute may lead to another lock than when this very thread took what it led to.
        is_certain = taken.is_certain and not (ident == waiter and taken.expression.path)
        return _Held(ident, since, is_certain or wait.owner is not None)

    def _holding(self, lock: object) -> list[tuple[int, FrameType, Taken]]:
        """Where threads have taken a lock that they have not given back."""
        if self._taken is None:  # all locks at once: there may be many threads
            self._taken = {}
            for ident in self._stacks:
                for frame, taken, held in self._taken_by(ident):
                    self._taken.setdefault(id(held), []).append((ident, frame, taken))
        return self._taken.get(id(lock), [])

    def _taken_by(self, ident: int) -> Iterator[tuple[FrameType, Taken, Any]]:
        """What a thread has taken; not what a condition that it waits for, or a call, gave back."""
        frames = self._stacks[ident]
        lent = [lock_of(local(frame, "self")) for frame in frames if frame.f_code is _WAIT]
        for frame in frames:
            for taken in self._reader(frame).taken(frame.f_lasti) if may_hold(frame) else ():
                held = lock_of(value_of(frame, taken.expression))
                if not any(one is held for one in lent):
                    yield frame, taken, held
            if "release" in frame.f_code.co_names:
                given = self._reader(frame).lent(frame.f_lasti)
                lent += [lock_of(value_of(frame, expression)) for expression in given]

    def _importing(self, ident: int | None, module: str) -> str | None:
        """The line at which a thread imports a module."""
        is_there = False
        for frame in self._stacks.get(ident or 0, ()):
            file = frame.f_code.co_filename
            in_importlib = file.startswith(_IMPORTLIB) or file.endswith(_IMPORT_MODULE)
            if in_importlib and frame.f_code.co_name == "_find_and_load":
                is_there = is_there or local(frame, "name") == module
            elif is_there and not in_importlib:
                return line_of(frame, frame.f_lineno or 0)
        return None


def settled(awaited: Awaited, before: ThreadFacts | None, after: ThreadFacts | None) -> Awaited:
    """A wait, with whether the thread has slept all the time between two looks of the kernel."""
    if before is None or after is None or before.switches is None:
        return awaited
    sleeps = before.state == after.state == "S" and before.switches == after.switches
    call = after.call
    return dataclasses.replace(
        awaited,
        is_settled=sleeps and call is not None and call.name == "futex",
        has_limit=call is None or call.has_limit,
    )


def _join(thread: object) -> _Wait | None:
    """The wait for a thread to end."""
    if not issubclass(type(thread), threading.Thread):
        return None
    own = own_attributes(thread)
    return _Wait("thread", f"thread {own.get('_name')} to end", owner=own.get("_ident"))


def _import(lock: object) -> _Wait | None:
    own = own_attributes(lock)
    name, owner = own.get("name"), own.get("owner")
    if type(name) is not str or type(owner) is not int:
        return None
    return _Wait("import", f"the import of module {name}", owner=owner, module=name)


def _awaits_notice(frame: FrameType) -> bool:
    """Whether that is a condition that waits to be notified."""
    code = frame.f_code
    return code is _WAIT or (code.co_name == "wait" and code.co_filename.endswith(_SHARED_FILE))


def _is_shared(lock: object) -> bool:
    """Whether that is a lock or semaphore of `multiprocessing`."""
    return type(lock) is getattr(sys.modules.get("_multiprocessing"), "SemLock", ())


def _is_locked(lock: Any) -> bool:
    if _is_shared(lock):
        return bool(lock._is_zero())
    return lock.locked() if type(lock) is _LOCK else _owner(lock) is not None


def _owner(lock: object) -> int | None:
    """The Python number of the thread that has an RLock; a plain lock does not know."""
    match = _OWNER.match(repr(lock)) if type(lock) is _RLOCK else None
    return int(match[1]) if match else None
