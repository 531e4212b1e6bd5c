"""What threads wait for that somebody has: locks, imports, and threads that must end.

Rules of this file: runs in the agent's thread and no code of the job's: attributes are read where
they are stored, and an owner is known by the lock itself, or by a thread that is inside a block
which has taken that very object. What is not known so is not said. A wait counts as settled only
where the kernel has not run the thread between two looks: then all that was seen of it in between
was so at one and the same moment.
"""

from __future__ import annotations

import _thread
import dataclasses
import dis
import inspect
import re
import threading
from collections.abc import Iterator, Mapping
from types import FrameType, MemberDescriptorType
from typing import Any, NamedTuple

from ....linux.process import ThreadFacts
from ....messages.common import Awaited
from ...eval.frame_names import locals_of
from .bytecode import CodeReader, Expression, Taken

_LOCK, _RLOCK = _thread.LockType, _thread.RLock
_OWNER = re.compile(r"<locked _thread\.RLock object owner=(\d+) ")
_IMPORTLIB = "<frozen importlib"
_IMPORT_MODULE = "/importlib/__init__.py"
_CO_OPTIMIZED = 1
_MOST_FRAMES = 200
_SETUPS = frozenset(n for name, n in dis.opmap.items() if name in {"SETUP_WITH", "SETUP_FINALLY"})
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
    """

    kind: str
    what: str
    owner: int | None = None
    lock: Any = None
    module: str | None = None


class _Held(NamedTuple):
    """Who has something, and since where."""

    ident: int | None
    since: str | None = None
    is_certain: bool = True


class Waits:
    """The waits of all threads at one moment.

    Args:
        frames: The innermost frame of each thread by its Python number.
        numbers: Their kernel numbers.
    """

    def __init__(self, frames: Mapping[int, FrameType], numbers: Mapping[int, int]) -> None:
        self._stacks = {ident: list(_outwards(frame)) for ident, frame in frames.items()}
        self._numbers = numbers
        self._readers: dict[Any, CodeReader] = {}
        self._taken: dict[int, list[tuple[int, FrameType, Taken]]] | None = None

    def waiting(self) -> set[int]:
        """The kernel numbers of the threads that wait for what somebody may have."""
        return {n for ident, n in self._numbers.items() if self._wait_of(ident) is not None}

    def found(self) -> dict[int, Awaited]:
        """What each of them waits for, by its kernel number."""
        return {
            number: self._awaited(wait)
            for ident, number in self._numbers.items()
            if (wait := self._wait_of(ident)) is not None
        }

    def _awaited(self, wait: _Wait) -> Awaited:
        held = self._holder(wait)
        return Awaited(
            kind=wait.kind,
            what=wait.what,
            holder_id=self._numbers.get(held.ident or 0),
            since=held.since,
            is_certain=held.is_certain,
        )

    def _wait_of(self, ident: int) -> _Wait | None:
        """What the innermost frame of a thread waits for."""
        frames = self._stacks.get(ident, [])
        inner = frames[0] if frames else None
        if inner is None or inner.f_code is _WAIT:  # of a condition nobody knows who will notify it
            return None
        if inner.f_code in _JOINS:
            return _join(_local(inner, "self"))
        if inner.f_code.co_filename.startswith(_IMPORTLIB):
            return _import(_local(inner, "self"))
        expression = self._reader(inner).awaited(inner.f_lasti)
        lock = None if expression is None else _value(inner, expression)
        if type(lock) not in {_LOCK, _RLOCK}:
            return None
        if inner.f_code.co_filename == threading.__file__ and len(frames) > 1:  # of a condition
            expression = self._reader(frames[1]).awaited(frames[1].f_lasti) or expression
        return _Wait("lock", f"the lock {expression}", owner=_owner(lock), lock=lock)

    def _holder(self, wait: _Wait) -> _Held:
        """Who has what is waited for."""
        if wait.module is not None:
            return _Held(wait.owner, self._importing(wait.owner, wait.module))
        if wait.lock is None:
            return _Held(wait.owner)
        if not _is_locked(wait.lock):
            return _Held(None)
        found = self._holding(wait.lock)
        if wait.owner:
            found = [one for one in found if one[0] == wait.owner]
        if len({ident for ident, _, _ in found}) != 1:
            return _Held(wait.owner)
        ident, frame, taken = found[0]
        since = f"{_file(frame)}:{taken.lineno} in {frame.f_code.co_name}"
        return _Held(ident, since, taken.is_certain or wait.owner is not None)

    def _holding(self, lock: Any) -> list[tuple[int, FrameType, Taken]]:
        """Where threads have taken a lock that they have not given back."""
        if self._taken is None:  # all locks at once: there may be many threads
            self._taken = {}
            for ident in self._stacks:
                for frame, taken, held in self._taken_by(ident):
                    self._taken.setdefault(id(held), []).append((ident, frame, taken))
        return self._taken.get(id(lock), [])

    def _taken_by(self, ident: int) -> Iterator[tuple[FrameType, Taken, Any]]:
        """What a thread has taken; not what a condition gives back while it is waited for."""
        frames = self._stacks[ident]
        lent = [_lock_of(_local(frame, "self")) for frame in frames if frame.f_code is _WAIT]
        for frame in filter(_may_hold, frames):
            for taken in self._reader(frame).taken(frame.f_lasti):
                held = _lock_of(_value(frame, taken.expression))
                if not any(one is held for one in lent):
                    yield frame, taken, held

    def _importing(self, ident: int | None, module: str) -> str | None:
        """The line at which a thread imports a module."""
        is_there = False
        for frame in self._stacks.get(ident or 0, ()):
            file = frame.f_code.co_filename
            in_importlib = file.startswith(_IMPORTLIB) or file.endswith(_IMPORT_MODULE)
            if in_importlib and frame.f_code.co_name == "_find_and_load":
                is_there = is_there or _local(frame, "name") == module
            elif is_there and not in_importlib:
                return f"{_file(frame)}:{frame.f_lineno} in {frame.f_code.co_name}"
        return None

    def _reader(self, frame: FrameType) -> CodeReader:
        if frame.f_code not in self._readers:
            self._readers[frame.f_code] = CodeReader(frame.f_code)
        return self._readers[frame.f_code]


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


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _join(thread: Any) -> _Wait | None:
    """The wait for a thread to end."""
    if not issubclass(type(thread), threading.Thread):
        return None
    own = _own(thread)
    return _Wait("thread", f"thread {own.get('_name')} to end", owner=own.get("_ident"))


def _import(lock: Any) -> _Wait | None:
    """The wait for a module that another thread imports."""
    own = _own(lock)
    name, owner = own.get("name"), own.get("owner")
    if type(name) is not str or type(owner) is not int:
        return None
    return _Wait("import", f"the import of module {name}", owner=owner, module=name)


def _may_hold(frame: FrameType) -> bool:
    """Whether the code of a frame has a block in which it could hold anything: most has none."""
    code = frame.f_code
    table: bytes | None = getattr(code, "co_exceptiontable", None)
    return bool(table) if table is not None else not _SETUPS.isdisjoint(code.co_code[::2])


def _is_locked(lock: Any) -> bool:
    return lock.locked() if type(lock) is _LOCK else _owner(lock) is not None


def _owner(lock: Any) -> int | None:
    """The Python number of the thread that has an RLock; a plain lock does not know."""
    match = _OWNER.match(repr(lock)) if type(lock) is _RLOCK else None
    return int(match[1]) if match else None


def _lock_of(value: Any) -> Any:
    """What is held by whoever has entered a value: a condition's lock, else itself."""
    return _own(value).get("_lock") if issubclass(type(value), threading.Condition) else value


def _value(frame: FrameType, expression: Expression) -> Any:
    """What an expression stands for in a frame; None where that cannot be read."""
    value = None if expression.is_global else _local(frame, expression.root)
    if value is None:
        value = dict.get(frame.f_globals, expression.root)
    for name in expression.path:
        found = inspect.getattr_static(value, name, None)
        try:
            value = found.__get__(value) if type(found) is MemberDescriptorType else found
        except AttributeError:  # a slot that is not set
            return None
    return value


def _local(frame: FrameType, name: str) -> Any:
    """A local variable of a function; None where there is none."""
    is_function = frame.f_code.co_flags & _CO_OPTIMIZED
    return locals_of(frame).get(name) if is_function else None


def _own(value: Any) -> dict[str, Any]:
    """The attributes that an object has of its own."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.rpartition("/")[2]
