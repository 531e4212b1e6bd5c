"""The coroutines that threads wait for which an event loop runs (`run_coroutine_threadsafe`).

Rules of this file: runs in the agent's thread and no code of the job's. Which coroutine a future is
the result of is read where asyncio keeps it: in the callbacks of the future, or before it has begun
in the queue of the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any, NamedTuple

from .frame_values import local, own_attributes

_NO_LOOP = "whose event loop does not run"
_NAMELESS = "coroutine"


class Coroutine(NamedTuple):
    """A coroutine whose result is waited for.

    Attributes:
        name: Its function.
        owner: The Python number of the thread whose event loop is to run it.
        who: Words about that where there is none.
    """

    name: str
    owner: int | None
    who: str | None


def coroutine_of(future: object, stacks: Mapping[int, Sequence[FrameType]]) -> Coroutine | None:
    """The coroutine that a future is the result of; None where no event loop has it.

    Args:
        stacks: The frames of each thread by its Python number.
    """
    module: Any = sys.modules.get("asyncio.base_events")
    kind: Any = getattr(sys.modules.get("asyncio.tasks"), "Task", None)
    if module is None or kind is None:
        return None
    loops = dict(_running(stacks, module.BaseEventLoop.run_forever.__code__))
    for callback in own_attributes(future).get("_done_callbacks") or ():
        for task in _enclosed(callback):
            if issubclass(type(task), kind):
                return _of_loop(kind.get_coro(task), kind.get_loop(task), loops)
    for loop in loops.values():
        for callback in _ready(loop):
            values = list(_enclosed(callback))
            if any(value is future for value in values):
                found = (one for one in values if type(one) in {CoroutineType, GeneratorType})
                return _of_loop(next(found, None), loop, loops)
    return None


def _running(
    stacks: Mapping[int, Sequence[FrameType]], run_forever: object
) -> Iterator[tuple[int, Any]]:
    """The event loops that run, by the Python numbers of their threads."""
    for ident, frames in stacks.items():
        for frame in frames:
            if frame.f_code is run_forever:
                yield ident, local(frame, "self")
                break


def _of_loop(coroutine: object, loop: object, loops: Mapping[int, Any]) -> Coroutine:
    """A coroutine with the thread whose loop has it."""
    owner = next((ident for ident, one in loops.items() if one is loop), None)
    is_idle = owner is None and own_attributes(loop).get("_thread_id", 0) is None
    return Coroutine(_name(coroutine), owner, _NO_LOOP if is_idle else None)


def _ready(loop: object) -> Iterator[Any]:
    kind: Any = getattr(sys.modules.get("asyncio.events"), "Handle", None)
    for handle in list(own_attributes(loop).get("_ready") or ()):
        if issubclass(type(handle), kind):
            yield kind._callback.__get__(handle)  # its slot


def _enclosed(function: object) -> Iterator[Any]:
    """The objects that a function has from where it was made."""
    if type(function) is tuple and function:  # a callback of asyncio's own futures has a context
        function = function[0]
    for cell in (function.__closure__ or ()) if type(function) is FunctionType else ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            continue


def _name(coroutine: object) -> str:
    if type(coroutine) is CoroutineType:
        return coroutine.cr_code.co_name
    return coroutine.gi_code.co_name if type(coroutine) is GeneratorType else _NAMELESS
