"""Writes rows into the ring files and names into the names file of this process.

Rules of this file: runs in the training threads, under the interpreter lock and nothing
else: no lock but for a new name, no allocation that grows, no string work per row. Space is
reserved when a file is made, so that a full disk is refused at the start and can never kill the
trainer while it writes. A row is one `pack_into` when it opens and one when it closes; see
`probing.ring` for why a reader never shows half of one.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ..errors import RingError
from ..names import encode_name
from ..ring import (
    DROPPED,
    HEADER_SIZE,
    MARKER,
    NULL_FLOAT,
    NULL_INT,
    NULL_NAME,
    dropped_offset,
    encode_header,
    layout_of,
)
from ..tables import Table

_LEAST_ROW_NS = 100
_START = struct.Struct("<q")
_MAX_NAMES_BYTES = 16 << 20
_NULLS = {"q": NULL_INT, "I": NULL_NAME, "d": NULL_FLOAT, "B": 2}
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Names:
    """Gives every name a number, once, and keeps the list in a file."""

    def __init__(self, path: Path) -> None:
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        path.unlink(missing_ok=True)  # left by an agent that this process had before
        self._fd = os.open(path, _CREATE | os.O_APPEND, 0o600)
        self._size = 0

    def intern(self, name: str) -> int:
        """The number of a name; 0 (NULL) when it can no longer be written down."""
        number = self._numbers.get(name)
        return self._write_down(name) if number is None else number

    def _write_down(self, name: str) -> int:
        """Give a new name its number: that of its place in the file."""
        with self._lock:  # writing lets other threads run
            if name in self._numbers:
                return self._numbers[name]
            record = encode_name(name)
            if self._size + len(record) > _MAX_NAMES_BYTES:
                return NULL_NAME
            # The name is in the file before any row can refer to it.
            os.write(self._fd, record)
            self._size += len(record)
            number = self._numbers[name] = len(self._numbers) + 1
            return number

    def close(self) -> None:
        """Close the file; what is in it stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RingWriter:
    """The writing end of one ring file.

    The attributes are public for the one caller that cannot afford a method call per row,
    the module wrapper; everything else uses `open_row` and `close_row`.

    Attributes:
        buffer: The mapping of the whole file.
        next_word: Gives the marker of the next row: its number times 4.
        slot_mask: ``word & slot_mask`` is the row's slot times 4.
        slot_scale: A slot's width divided by 4.
        lap_ns: What it takes at the very least to write the ring full: a row that was opened less
            than this ago is still in its slot.
    """

    def __init__(self, path: Path, table: Table, rows: int) -> None:
        """Make the file and reserve all its space.

        Args:
            rows: The least number of rows it holds; rounded up to a power of two.

        Raises:
            RingError: The space cannot be had.
        """
        self.layout = layout_of(table)
        capacity = 1 << max(0, rows - 1).bit_length()
        size = HEADER_SIZE + capacity * self.layout.row_size
        path.unlink(missing_ok=True)  # left by an agent that this process had before
        fd = os.open(path, _CREATE, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            self.buffer = mmap.mmap(fd, size)
        except OSError as error:
            os.unlink(path)
            reason = f"{size:,} bytes in {path.parent}: {error.strerror}"
            raise RingError(table.name, reason) from None
        finally:
            os.close(fd)
        self.clock_offset_ns = time.time_ns() - time.perf_counter_ns()
        self.buffer[:HEADER_SIZE] = encode_header(
            self.layout, capacity=capacity, clock_offset_ns=self.clock_offset_ns
        )
        self._words = itertools.count(4, 4)
        self.next_word = self._words.__next__
        self.slot_mask = (capacity - 1) << 2
        self.slot_scale = self.layout.row_size >> 2
        self.lap_ns = capacity * _LEAST_ROW_NS
        self._closing_nulls = tuple(_NULLS[field.code] for field in self.layout.closing)
        places = {field.column.name: field.offset for field in self.layout.opening}
        self._start_at = places.get("start_ns", 0)
        names = [field.column.name for field in self.layout.closing]
        self._closing_named = tuple(zip(names, self._closing_nulls, strict=True))
        self._released = 0

    def offset_of(self, word: int) -> int:
        """Where in the file the row of a word lies."""
        return HEADER_SIZE + (word & self.slot_mask) * self.slot_scale

    def open_row(self, *opening: object) -> int:
        """Write a row with its opening columns, in layout order; returns its word."""
        word = self.next_word()
        self.layout.open_struct.pack_into(
            self.buffer, self.offset_of(word), word, *opening, *self._closing_nulls, word
        )
        return word

    def close_row(self, word: int, state: int, *closing: object) -> None:
        """Complete a row with its closing columns, unless it has been overwritten."""
        if self.still_holds(word):
            self.layout.close_struct.pack_into(
                self.buffer,
                self.offset_of(word) + self.layout.close_offset,
                *closing,
                word + state,
            )

    def close_named(self, word: int, state: int, values: Mapping[str, object]) -> None:
        """Complete a row with some of its closing columns by name, the others being NULL.

        A row may be completed again, with more than was known the first time.
        """
        closing = [values.get(n, null) for n, null in self._closing_named]
        self.close_row(word, state, *closing)

    def newest_word(self) -> int:
        """The word of the row opened last; 0 before the first."""
        # A count tells its next number without moving on in one way only: by its text.
        return int(repr(self._words).strip("count()").partition(",")[0]) - 4

    def started_ns(self, word: int) -> int:
        """When a row was opened, by its `start_ns`."""
        start: int = _START.unpack_from(self.buffer, self.offset_of(word) + self._start_at)[0]
        return start

    def still_holds(self, word: int) -> bool:
        """Whether a row has not been overwritten."""
        begin: int = MARKER.unpack_from(self.buffer, self.offset_of(word))[0]
        return begin == word

    def count_dropped(self) -> None:
        """Note in the header that a row could not be written."""
        at = dropped_offset()
        DROPPED.pack_into(self.buffer, at, DROPPED.unpack_from(self.buffer, at)[0] + 1)

    def release_pages(self, word: int, *, every: int = 1 << 14) -> None:
        """Give pages already written back to the kernel, once per `every` rows.

        The data stays in the file; the process's resident set does not grow with the ring.
        """
        if word - self._released >= every << 2:
            self._released = word
            self.buffer.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file; what is in it stays."""
        self.buffer.close()
