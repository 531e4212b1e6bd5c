"""Writes the rows of a ring: the Python twin of the C part's `Rows`.

Rules of this file: no torch, no file; knows where the ring is mapped and how its rows are laid out.
"""

from __future__ import annotations

from typing import Any, Protocol

from .format import (
    HEADER_SIZE,
    MARKER,
    NULL_FLOAT,
    NULL_INT,
    NULL_NAME,
    NULL_TEXT,
    RingLayout,
    is_inline,
)
from .native import IN_C, PlainWords

_NULLS = {"q": NULL_INT, "I": NULL_NAME, "d": NULL_FLOAT, "B": 2}


class Rows(Protocol):
    """What writes rows."""

    def open_row(self, *opening: Any) -> int:
        """Write a row with its opening columns, in layout order; returns its word."""

    def reopen_row(self, word: int, /, *opening: Any) -> None:
        """Write a row that is not complete anew, unless it has been overwritten."""

    def close_row(self, word: int, state: int, /, *closing: Any) -> None:
        """Complete a row with its closing columns, unless it has been overwritten."""

    def still_holds(self, word: int, /) -> bool:
        """Whether a row has not been overwritten."""

    def release(self) -> None:
        """Let go of the ring."""


def nulls_of(layout: RingLayout) -> tuple[Any, ...]:
    """Closing columns that are all NULL, in layout order."""
    return tuple([null_of(field.code) for field in layout.closing])


def null_of(code: str) -> Any:
    """What is stored for NULL."""
    return NULL_TEXT if is_inline(code) else _NULLS[code]


def rows_of(layout: RingLayout, buffer: memoryview, words: PlainWords, *, in_c: bool) -> Rows:
    """What writes the rows of a ring.

    Args:
        buffer: All of it.
        words: Gives rows their numbers.
        in_c: Whether the C part does, where it was built; never texts that stand in their rows.
    """
    if not in_c or IN_C is None or any(is_inline(field.code) for field in layout.fields):
        return PlainRows(layout, buffer, words)
    rows: Rows = IN_C.Rows(
        ring=buffer,
        words=words,
        columns=tuple([(field.offset, field.code) for field in layout.fields]),
        opening=len(layout.opening),
        nulls=nulls_of(layout),
        row_size=layout.row_size,
    )
    return rows


class PlainRows:
    """Writes them in Python."""

    def __init__(self, layout: RingLayout, buffer: memoryview, words: PlainWords) -> None:
        capacity = (len(buffer) - HEADER_SIZE) // layout.row_size
        self._buffer = buffer
        self._take = words.take
        self._mask = (capacity - 1) << 2
        self._scale = layout.row_size >> 2
        self._nulls = nulls_of(layout)
        self._pack_open = layout.open_struct.pack_into
        self._pack_close = layout.close_struct.pack_into
        self._close_at = HEADER_SIZE + layout.close_offset

    def open_row(self, *opening: Any) -> int:
        """See `Rows`."""
        word = self._take()
        at = HEADER_SIZE + (word & self._mask) * self._scale
        self._pack_open(self._buffer, at, word, *opening, *self._nulls, word)
        return word

    def reopen_row(self, word: int, /, *opening: Any) -> None:
        """See `Rows`."""
        if self.still_holds(word):
            at = HEADER_SIZE + (word & self._mask) * self._scale
            self._pack_open(self._buffer, at, word, *opening, *self._nulls, word)

    def close_row(self, word: int, state: int, /, *closing: Any) -> None:
        """See `Rows`."""
        at = (word & self._mask) * self._scale
        if MARKER.unpack_from(self._buffer, HEADER_SIZE + at)[0] == word:
            self._pack_close(self._buffer, self._close_at + at, *closing, word + state)

    def still_holds(self, word: int, /) -> bool:
        """See `Rows`."""
        at = HEADER_SIZE + (word & self._mask) * self._scale
        begin: int = MARKER.unpack_from(self._buffer, at)[0]
        return begin == word

    def release(self) -> None:
        """See `Rows`: the mapping is let go of by its file."""
