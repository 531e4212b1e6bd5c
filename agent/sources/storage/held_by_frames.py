"""The tensors that functions under way hold in their local variables.

Rules of this file: reads variables of other threads while they stand still, and leaves nothing
behind: before Python 3.13 a frame that is asked for its variables keeps a dictionary of them, which
would keep every tensor in it alive.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ....safety.other_stacks import current_stacks, locals_of
from .living import MRO

_MOST_ITEMS = 64
_OURS = "probing."
_ONLY_THE_FRAMES = 3
"""References to a frame's dictionary that nobody else has: its own, ours, and the one counting."""


def held_by_frames(plain: type) -> Iterator[Any]:
    """The tensors in local variables of every thread, also in their tuples and dictionaries."""
    stacks = current_stacks()
    del stacks[threading.get_ident()][0]  # this very frame, which would hold itself
    for stack in stacks.values():
        for frame in stack:
            for value in _values(frame):
                yield from _tensors(value, plain)


def held_by_generators(generators: list[object], plain: type) -> Iterator[Any]:
    """The tensors in variables of generators that wait to go on, such as one that makes batches."""
    if generators:
        for value in gc.get_referents(*generators):
            yield from _tensors(value, plain)


def _values(frame: FrameType) -> list[Any]:
    is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    module = frame.f_globals.get("__name__")
    if not is_function and module != "__main__":
        return []
    if type(module) is str and module.startswith(_OURS):  # would hold itself by what it looks at
        return []
    names = locals_of(frame)
    values = list(names.values())
    if is_function and type(names) is dict and sys.getrefcount(names) <= _ONLY_THE_FRAMES:
        names.clear()
    return values


def _tensors(value: Any, plain: type) -> Iterator[Any]:
    kind = type(value)
    if plain in MRO(kind):
        yield value
    elif kind is tuple or kind is dict:
        inner = value if kind is tuple else list(value.values())
        if len(inner) <= _MOST_ITEMS:
            yield from [item for item in inner if plain in MRO(type(item))]
