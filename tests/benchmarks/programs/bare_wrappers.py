"""The least that wrappers of ``torch.nn.Module.__call__`` can do, to hold the recorder against.

Each stands in for the call as long as a ``with`` lasts.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

_ROWS = 1 << 16
_ROW = struct.Struct("<QqqQQQQQ")
_CLOSE = struct.Struct("<qQ")


@contextlib.contextmanager
def _standing_in(wrapper: Callable[..., Any]) -> Iterator[None]:
    """Have every module call go through a function."""
    original: Any = nn.Module.__call__
    nn.Module.__call__ = wrapper
    try:
        yield
    finally:
        nn.Module.__call__ = original


def appending() -> contextlib.AbstractContextManager[None]:
    """A wrapper that appends a tuple to a list."""
    seen: list[tuple[int, int, int]] = []
    append, clock = seen.append, time.perf_counter_ns

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        result = self._call_impl(*args, **kwargs)
        append((id(self), start, clock()))
        return result

    return _standing_in(call)


def packing() -> contextlib.AbstractContextManager[None]:
    """A wrapper that packs one row into a mapping, as the call has ended."""
    buffer = mmap.mmap(-1, _ROWS * _ROW.size)
    pack, clock, count = _ROW.pack_into, time.perf_counter_ns, itertools.count().__next__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        result = self._call_impl(*args, **kwargs)
        word = count()
        at = (word & (_ROWS - 1)) * 64
        pack(buffer, at, word, start, clock() - start, id(self), 0, 0, 0, word)
        return result

    return _standing_in(call)


def packing_twice() -> contextlib.AbstractContextManager[None]:
    """A wrapper that packs a row as the call begins, and completes it at its end."""
    buffer = mmap.mmap(-1, _ROWS * _ROW.size)
    pack, close = _ROW.pack_into, _CLOSE.pack_into
    clock, count = time.perf_counter_ns, itertools.count().__next__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        word = count()
        at = (word & (_ROWS - 1)) * 64
        start = clock()
        pack(buffer, at, word, start, -1, id(self), 0, 0, 0, word)
        result = self._call_impl(*args, **kwargs)
        close(buffer, at + 48, clock() - start, word + 1)
        return result

    return _standing_in(call)
