"""Stacks of other threads, walked while these go on.

In Python 3.11 a frame gets its object only when somebody asks for it. To make that object, or the
dictionary of its locals, may set off a collection of garbage, which may run Python, such as a
callback of `gc.callbacks`, in which the other thread goes on and leaves the frame: then Python
writes into what its stack holds by now. Before, each frame was an object; since, allocating never
collects.

Rules of this file: nothing is collected while such an object is made, and no other thread runs: all
of it is one call of C code.
"""

from __future__ import annotations

import gc
import operator
import sys
import threading
from collections.abc import Iterable
from itertools import accumulate, chain, islice, repeat, starmap, takewhile
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_IS_OPEN_TO_COLLECTIONS = sys.version_info[:2] == (3, 11)


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by its identity."""
    (frames,) = _undisturbed(starmap(sys._current_frames, ((),)))  # noqa: SLF001 - as its docs say
    frames[threading.get_ident()] = sys._getframe(1)  # noqa: SLF001 - as its docs say
    return frames


def stack_of(frame: FrameType | None, most: int | None = None) -> list[FrameType]:
    """A frame and those that have called it, the innermost first, or so many of them."""
    if frame is None:
        return []
    steps: Iterable[Any] = chain((frame,), repeat("f_back"))
    callers: Iterable[Any] = accumulate(steps, getattr)
    return _undisturbed(islice(takewhile(operator.truth, callers), most))


def locals_of(frame: FrameType) -> Any:
    """What `frame.f_locals` is."""
    return _undisturbed(map(getattr, (frame,), ("f_locals",)))[0]


def _undisturbed(things: Iterable[T]) -> list[T]:
    """The things of an iterator that is written in C."""
    if not _IS_OPEN_TO_COLLECTIONS:
        return list(things)
    before: list[tuple[int, int, int]] = []
    note = map(before.append, starmap(gc.get_threshold, ((),)))
    begin = chain(note, starmap(gc.set_threshold, ((0,),)))
    end = starmap(gc.set_threshold, before)
    try:
        # All but the things themselves return None.
        return list(chain(filter(None, begin), things, filter(None, end)))
    except BaseException:
        if before:
            gc.set_threshold(*before[0])
        raise
