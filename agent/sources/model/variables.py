"""The variable of the script that holds an object, such as a model: its name there.

Rules of this file: runs in the training thread, once per model and optimizer. Reads the names of
modules' globals, and those of functions only from Python 3.13 on: before that, to ask for them can
change what the script itself was given by ``locals()``, and keeps tensors alive.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

_NOT_THE_SCRIPT = ("torch.", "probing.", "contextlib.", "functools.", "threading.")
_READS_LOCALS = sys.version_info >= (3, 13)
_MOST_FRAMES = 40
_MOST_NAMES = 2000
_CO_OPTIMIZED = 1


def variable_of(thing: Any) -> str | None:
    """The name of a variable of the calling script that is an object, or has it as attribute."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[int] = set()
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        module = f"{frame.f_globals.get('__name__', '')}."
        if not module.startswith(_NOT_THE_SCRIPT):
            for names in _names_in(frame, seen):
                found = _found_in(names, thing)
                if found is not None:
                    return found
        frame = frame.f_back
    main = sys.modules.get("__main__")
    return _found_in(vars(main), thing) if main is not None else None


def _names_in(frame: FrameType, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """The names that a frame sees: its own, and those of its module, which come once."""
    is_function = frame.f_code.co_flags & _CO_OPTIMIZED
    if is_function and _READS_LOCALS:
        yield frame.f_locals
    if id(frame.f_globals) not in seen:
        seen.add(id(frame.f_globals))
        yield frame.f_globals


def _found_in(names: Mapping[str, Any], thing: Any) -> str | None:
    """The name of an object; of several the shortest."""
    if len(names) > _MOST_NAMES:
        return None
    items = list(names.items())
    found = [name for name, value in items if value is thing and not name.startswith("_")]
    if not found and "self" in names:
        own = getattr(names["self"], "__dict__", {})
        found = [name for name, value in list(own.items()) if value is thing]
    return min(found, key=len) if found else None
