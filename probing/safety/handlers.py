"""Tells what a signal's handler of the program has raised from a fault of ours.

Rules of this file: asked only where something was raised. Python runs a handler in the midst of
whatever the main thread does, so its exception, such as that of a time limit, comes out of ours.
No code of its objects runs meanwhile, such as a `__class__` of their own, which `isinstance` asks.
"""

from __future__ import annotations

from itertools import pairwise
from types import FrameType

from ..own_files import is_ours

_TAKES_MORE = 0x04
"""`inspect.CO_VARARGS`, which is much to import for one flag."""


def is_of_handler(error: BaseException) -> bool:
    """Whether an exception comes from a signal's handler, by its traceback.

    A handler is what was given a signal's number and the very frame that it interrupts. Which ones
    are installed does not tell: many take themselves off before they raise.
    """
    entry, frames = error.__traceback__, list[FrameType]()
    while entry is not None:
        frame = entry.tb_frame
        if frames and not is_ours(frame.f_code.co_filename) and _is_handler(frame, frames):
            return True
        frames.append(frame)
        entry = entry.tb_next
    return False


def _is_handler(frame: FrameType, frames: list[FrameType]) -> bool:
    """Whether a frame was called with a signal's number and one of the frames around it."""
    return any(
        issubclass(type(number), int) and any(given is outer for outer in frames)
        for number, given in pairwise(_given(frame))
    )


def _given(frame: FrameType) -> list[object]:
    """What a frame was called with by position, unless it has forgotten that."""
    code, values = frame.f_code, frame.f_locals
    given = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & _TAKES_MORE:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        given += rest if type(rest) is tuple else ()
    return given
