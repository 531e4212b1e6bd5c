"""The variable of the script that holds an object, such as a model: its name there.

Rules of this file: runs in the training thread, once per model and optimizer; reads the names of
that thread's own frames. Before Python 3.13 a function's frame keeps the copy of its names that was
made for whoever asked: `locals_of` empties it, and functions that may have asked for it themselves,
whose copy would change under them, are passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from ...eval.frame_names import locals_of

_NOT_THE_SCRIPT = ("torch.", "probing.", "contextlib.", "functools.", "threading.")
_KEEPS_COPIES = sys.version_info < (3, 13)
_ASKS_ITSELF = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"})
_MOST_FRAMES = 100
_MOST_NAMES = 2000
_CO_OPTIMIZED = 1


def variable_of(thing: object) -> str | None:
    """The name of a variable of the calling script that is an object, or has it as attribute.

    The outermost function's counts first: what others call their parameters is no name of it.
    """
    found = (_found_in(names, thing) for names in _scopes())
    return next((name for name in found if name is not None), None)


def sees_script() -> bool:
    """Whether a function of the calling script is running in this thread."""
    return bool(_frames_of_script())


def holder_of(is_holder: Callable[[Any], bool]) -> Any:
    """What a variable of the calling script holds of which this is true; None where none does."""
    for names in _scopes():
        if len(names) <= _MOST_NAMES:
            for value in list(names.values()):
                if is_holder(value):
                    return value
    return None


def own_names(frame: FrameType) -> Mapping[str, Any]:
    """The variables of a function's frame; none where to read them could change something."""
    is_function = frame.f_code.co_flags & _CO_OPTIMIZED
    if not is_function or (_KEEPS_COPIES and _may_have_copy(frame)):
        return {}
    return locals_of(frame)


def _scopes() -> Iterator[Mapping[str, Any]]:
    """The names that the calling script sees, those of its outermost function first."""
    seen: set[int] = set()
    for outer in reversed(_frames_of_script()):
        yield from _names_in(outer, seen)
    main = sys.modules.get("__main__")
    if main is not None:
        yield vars(main)


def _frames_of_script() -> list[FrameType]:
    """The frames of this thread that are of the script or its libraries, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        if not f"{frame.f_globals.get('__name__', '')}.".startswith(_NOT_THE_SCRIPT):
            frames.append(frame)
        frame = frame.f_back
    return frames


def _names_in(frame: FrameType, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """The names that a frame sees: its own, and those of its module, which come once."""
    yield own_names(frame)
    if id(frame.f_globals) not in seen:
        seen.add(id(frame.f_globals))
        yield frame.f_globals


def _may_have_copy(frame: FrameType) -> bool:
    """Whether the script, or a debugger of its, may have the copy that the frame keeps."""
    return frame.f_trace is not None or not _ASKS_ITSELF.isdisjoint(frame.f_code.co_names)


def _found_in(names: Mapping[str, object], thing: object) -> str | None:
    """The name of an object; of several the one that was given first."""
    if len(names) > _MOST_NAMES:
        return None
    items = list(names.items())
    found = [
        name
        for name, value in items
        if value is thing and name != "self" and not name.startswith("_")
    ]
    if not found and "self" in names:
        own = getattr(names["self"], "__dict__", {})
        found = [name for name, value in own.copy().items() if value is thing]
    return found[0] if found else None
