"""Reads things at a moment at which every other thread stands where that is known to be safe.

Python changes threads at any instruction between two questions, and while a thread is in some calls
of C code. So nothing that was seen of another thread holds good by the time it is acted on, unless
nothing ran in between.

Rules of this file: the stacks are looked at in Python, while others go on. Then one call of C code,
in which no other thread gets the interpreter lock, sees whether each is where it was, and only then
reads. What it is to read is an iterator written in C that never gives the lock away.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, repeat, starmap
from operator import attrgetter
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from .other_stacks import current_stacks, undisturbed

T = TypeVar("T")

_TRIES = 8
_POLL_S = 0.001
_UNMOVED: Any = object()


class Standing(NamedTuple):
    """Where a thread is.

    Attributes:
        stack: Its frames, the innermost first.
        lasti: The instruction of the innermost, as of `f_lasti`; the others' do not change.
    """

    stack: Sequence[FrameType]
    lasti: int


def read_when(
    is_safe: Callable[[Sequence[Standing]], bool],
    things: Callable[[], Iterable[T]],
    patience_s: float,
) -> list[T] | None:
    """The things, read while all other threads stand where that is safe.

    Args:
        is_safe: Says so of all other threads.
        things: Makes the iterator.
        patience_s: How long that is waited for.

    Returns:
        They; None where it was not to be had.
    """
    until = time.monotonic() + patience_s
    while True:
        for _ in range(_TRIES):
            found = _read_once(is_safe, things())
            if found is None:
                break
            if found[:1] == [_UNMOVED]:
                return found[1:]
        if time.monotonic() >= until:
            return None
        time.sleep(_POLL_S)


def _read_once(
    is_safe: Callable[[Sequence[Standing]], bool], things: Iterable[Any]
) -> list[Any] | None:
    """The things behind a mark; nothing where a thread has gone on, None where it is not safe."""
    stacks = current_stacks()
    stacks.pop(threading.get_ident()).clear()
    standing = [Standing(stack, stack[0].f_lasti) for stack in stacks.values()]
    try:
        if not is_safe(standing):
            return None
        return _read_unmoved({(id(one.stack[0]), one.lasti) for one in standing}, things)
    finally:
        stacks.clear()
        standing.clear()


def _read_unmoved(places: set[tuple[int, int]], things: Iterable[Any]) -> list[Any]:
    """The things behind a mark, if all others are in these frames, at these instructions."""
    found: list[dict[int, FrameType]] = []
    current = starmap(sys._current_frames, ((),))  # noqa: SLF001 - as its docs say
    note = map(found.append, current)
    own: Iterable[Any] = map(dict.pop, found, (threading.get_ident(),))
    frames, same = (chain.from_iterable(map(dict.values, found)) for _ in range(2))
    now = zip(map(id, frames), map(attrgetter("f_lasti"), same), strict=True)
    is_same: Iterable[Any] = map(places.__eq__, map(set, (now,)))
    read = chain.from_iterable(map(((), chain((_UNMOVED,), things)).__getitem__, is_same))
    try:
        # The first two give nothing, as the frame of this very call is no concern of anybody.
        return undisturbed(chain(filter(None, note), compress(own, repeat(0)), read))
    finally:
        found.clear()
