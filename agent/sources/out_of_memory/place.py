"""Where an exception came from: the innermost module, the root, and what the root was given.

Rules of this file: runs in the handler of an exception. Looks at the frames that it came through,
and at those around the handler; keeps none of them, and no object of theirs.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from ..calls.call_shapes import read_tensors
from ..calls.names.class_names import class_name, unwrap
from ..calls.names.module_names import ModuleNames


class Given(NamedTuple):
    """What a root module was given.

    Attributes:
        text: Names and shapes of the tensors.
        samples: The first dimension of the first of them.
    """

    text: str | None
    samples: int | None


class Place(NamedTuple):
    """Where an exception came from: names, or their numbers; None for what is not known."""

    module: str | int | None = None
    root: str | int | None = None
    given: Given | None = None


NO_PLACE = Place()


class Sight(NamedTuple):
    """An exception as it was seen last, on its way.

    Attributes:
        key: Its identity, which another one may have after it.
        length: Frames that it had come through.
        origin: The innermost of them: its code and instruction.
    """

    key: int
    length: int
    origin: tuple[int, int]

    def is_before(self, later: Sight) -> bool:
        """Whether the later sight is of the same exception, further on its way."""
        same = (self.key, self.origin) == (later.key, later.origin)
        return same and later.length > self.length


def sight_of(error: BaseException) -> Sight:
    """An exception as it is seen now."""
    traceback, length, origin = error.__traceback__, 0, (0, 0)
    while traceback is not None:
        length += 1
        origin = (id(traceback.tb_frame.f_code), traceback.tb_lasti)
        traceback = traceback.tb_next
    return Sight(id(error), length, origin)


def place_of(error: BaseException, names: ModuleNames) -> Place:
    """Where an exception came from, as far as modules were being called.

    Args:
        names: Knows what modules are called.
    """
    code = sys.modules["torch"].nn.Module._call_impl.__code__
    inside = _calls_through(error.__traceback__, code)
    frame = error.__traceback__.tb_frame if error.__traceback__ is not None else None
    calls = [*_calls_around(frame, code), *inside]  # the outermost first
    if not calls:
        return NO_PLACE
    innermost, root = calls[-1]["self"], calls[0]["self"]
    name = names.paths.get(id(innermost)) or class_name(innermost)
    given = given_of(tuple(calls[0].get("args") or ()), dict(calls[0].get("kwargs") or {}))
    return Place(name, class_name(unwrap(root)), given)


def given_of(args: tuple[object, ...], kwargs: dict[str, object]) -> Given:
    """The tensors in the arguments of a root."""
    value: Any = {**{str(place): arg for place, arg in enumerate(args)}, **kwargs}
    found = read_tensors(value, sys.modules["torch"])
    shape = found.named[0][1] if found.named else ()
    return Given(found.text, shape[0] if shape else None)


def _calls_through(traceback: TracebackType | None, code: CodeType) -> list[dict[str, Any]]:
    """The locals of the modules' calls that it came through."""
    found = []
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            found.append(traceback.tb_frame.f_locals)
        traceback = traceback.tb_next
    return found


def _calls_around(frame: FrameType | None, code: CodeType) -> list[dict[str, Any]]:
    """The locals of the modules' calls that are still under way around a frame."""
    found: list[dict[str, Any]] = []
    frame = frame.f_back if frame is not None else None
    while frame is not None:
        if frame.f_code is code:
            found.append(frame.f_locals)
        frame = frame.f_back
    found.reverse()
    return found
