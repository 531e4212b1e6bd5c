"""Stacks of other threads, walked while these go on.

In Python 3.11 a frame gets its object only when somebody asks for it. To make that object, or the
dictionary of its locals, may set off a collection of garbage, which may run Python, such as a
callback of `gc.callbacks`, in which the other thread goes on and leaves the frame: then Python
writes into what its stack holds by now. Before, each frame was an object, and other things that are
made here may set off a collection; since, allocating never collects.

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

_IS_OPEN_TO_COLLECTIONS = sys.version_info < (3, 12)


def current_stacks() -> dict[int, list[FrameType]]:
    """The stack of each thread, the innermost frame first, by its identity: all at one moment.

    A thread that has gone on has left its frames: a generator that has yielded since then does not
    know who had called it.
    """
    found: list[dict[int, FrameType]] = []
    walked = undisturbed(_all_stacks(found))
    stacks = dict(zip(found[0], walked, strict=True))
    found.clear()  # frames of ours are in both, and would hold themselves and all others
    walked.clear()
    stacks[threading.get_ident()] = stack_of(sys._getframe(1))  # noqa: SLF001 - as its docs say
    return stacks


def _all_stacks(found: list[dict[int, FrameType]]) -> Iterable[list[FrameType]]:
    """The stack of each thread, after its innermost frame was put into `found`: C code alone."""
    current = starmap(sys._current_frames, ((),))  # noqa: SLF001 - as its docs say
    frames = chain.from_iterable(map(dict.values, found))
    steps: Iterable[Any] = map(chain, zip(frames), repeat(repeat("f_back")))
    callers = map(takewhile, repeat(operator.truth), map(accumulate, steps, repeat(getattr)))
    return chain(filter(None, map(found.append, current)), map(list, callers))


def stack_of(frame: FrameType | None, most: int | None = None) -> list[FrameType]:
    """A frame and those that have called it, the innermost first, or so many of them."""
    if frame is None:
        return []
    steps: Iterable[Any] = chain((frame,), repeat("f_back"))
    callers: Iterable[Any] = accumulate(steps, getattr)
    return undisturbed(islice(takewhile(operator.truth, callers), most))


def locals_of(frame: FrameType) -> Any:
    """What `frame.f_locals` is."""
    return undisturbed(map(getattr, (frame,), ("f_locals",)))[0]


def undisturbed(things: Iterable[T]) -> list[T]:
    """The things of an iterator that is written in C, with nothing collected meanwhile."""
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
