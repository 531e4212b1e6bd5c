"""The objects that frames of the job's refer to, read without running any code of the job's.

Rules of this file: attributes are read where they are stored; what cannot be read is None.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from types import FrameType, MemberDescriptorType
from typing import Any

from ....safety.other_stacks import stack_of
from ...eval.frame_names import locals_of
from .bytecode import Expression

CONDITIONS = (
    ("threading", "Condition"),
    ("multiprocessing.synchronize", "Condition"),
    ("asyncio.locks", "Condition"),
)
_SHARED = ("multiprocessing.synchronize", "SemLock")
_CO_OPTIMIZED = 1
_MOST_FRAMES = 200
_SETUPS = frozenset(
    number
    for name, number in dis.opmap.items()
    if name in {"SETUP_WITH", "SETUP_FINALLY", "SETUP_ASYNC_WITH"}
)


def may_hold(frame: FrameType) -> bool:
    """Whether the code of a frame has a block in which it could hold anything: most has none."""
    code = frame.f_code
    table: bytes | None = getattr(code, "co_exceptiontable", None)
    return bool(table) if table is not None else not _SETUPS.isdisjoint(code.co_code[::2])


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    yield from stack_of(frame, _MOST_FRAMES)


def lock_of(value: object) -> Any:
    """What is held by whoever has entered a value: a condition's lock, else itself.

    Of what is shared between processes it is the object of C that all wrappers of it have.
    """
    if any(map(partial(_is_of, value), CONDITIONS)):
        value = own_attributes(value).get("_lock")
    return own_attributes(value).get("_semlock") if _is_of(value, _SHARED) else value


def _is_of(value: object, place: tuple[str, str]) -> bool:
    """Whether a value is of a class that may not be loaded."""
    module, name = place
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and issubclass(type(value), kind)


def value_of(frame: FrameType, expression: Expression) -> Any:
    """What an expression stands for in a frame; None where that cannot be read."""
    value = None if expression.is_global else local(frame, expression.root)
    if value is None:
        value = dict.get(frame.f_globals, expression.root)
    for name in expression.path:
        found = inspect.getattr_static(value, name, None)
        try:
            value = found.__get__(value) if type(found) is MemberDescriptorType else found
        except AttributeError:  # a slot that is not set
            return None
    return value


def local(frame: FrameType, name: str) -> Any:
    """A local variable of a function; None where there is none."""
    is_function = frame.f_code.co_flags & _CO_OPTIMIZED
    return locals_of(frame).get(name) if is_function else None


def own_attributes(value: object) -> dict[str, Any]:
    """The attributes that an object has of its own."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def line_of(frame: FrameType, lineno: int) -> str:
    """A line of a frame's code, as it is told."""
    file = frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{lineno} in {frame.f_code.co_name}"
