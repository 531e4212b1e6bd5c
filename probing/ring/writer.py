"""Writes rows into the ring files and names into the names file of this process.

An agent that comes after another one in the same process goes on in its files, so that a process
has one record; see `probing.ring.earlier_record`.

Rules of this file: runs in the training threads, under the interpreter lock and nothing
else: no lock but for a new name, no allocation that grows, no string work per row. Space is
reserved when a file is made, so that a full disk is refused at the start and can never kill the
trainer while it writes. A row is one `pack_into` when it opens and one when it closes; see
`probing.ring.format` for why a reader never shows half of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import RingError
from ..safety.guard import pass_on
from ..tables import Table
from .format import (
    DROPPED,
    HEADER_SIZE,
    NULL_NAME,
    dropped_offset,
    encode_header,
    layout_of,
)
from .mapped_file import MappedFile
from .names import MAX_FILE_BYTES, encode_name
from .native import Words
from .rows import nulls_of, rows_of
from .space import fitting_rows, shortfall

_MEASUREMENTS = 5


def offset_between(wall_ns: Callable[[], int], steady_ns: Callable[[], int]) -> int:
    """By how much a clock is ahead of another.

    Of some measurements it is the one that took least: whoever gets no processor between two
    readings would else move all times by as long.
    """
    found = []
    for _ in range(_MEASUREMENTS):
        before, wall, after = steady_ns(), wall_ns(), steady_ns()
        found.append((after - before, wall - (before + after) // 2))
    return min(found)[1]


CLOCK_OFFSET_NS = offset_between(time.time_ns, time.perf_counter_ns)
"""What makes the monotonic clock the time since the epoch: one for all rings, so that rows of any
two tables are in their order though somebody set the machine's clock between their first rows."""
_LEAST_ROW_NS = 100
_START = struct.Struct("<q")
_AGAIN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = _AGAIN | os.O_CREAT | os.O_EXCL
_WRITABLE, _FIXED = 0o600, 0o400
"""The rights on a ring while it is made, and then: who would cut a file short that is mapped here
kills this process, so not even its owner may do that by mistake."""


class Names:
    """Gives every name a number, once, and keeps the list in a file.

    Attributes:
        lost: How many times a name could not be written down.
        goes_on: Whether the list is that of an agent before this one, which goes on.
    """

    def __init__(self, path: Path) -> None:
        self._numbers: dict[str, int] = {}
        self._count = self._size = self.lost = 0
        self._lock = threading.RLock()  # a signal's handler may come back here
        self.goes_on = False
        if path.exists():  # left by an agent that this process had before
            self._read(path)
        if not self.goes_on:
            path.unlink(missing_ok=True)
        self._fd = os.open(path, (_AGAIN if self.goes_on else _CREATE) | os.O_APPEND, 0o600)
        self._file = _identity(os.fstat(self._fd))
        self._why: str | None = None

    def _read(self, path: Path) -> None:
        """Take over the names of an earlier agent, if they are as it wrote them."""
        from .earlier_record import read_names

        earlier = read_names(path, most_bytes=MAX_FILE_BYTES)
        if earlier is not None:
            self._numbers, self._count, self._size = earlier
            self.goes_on = True

    def intern(self, name: str) -> int:
        """The number of a name; 0 (NULL) when it can no longer be written down."""
        number = self._numbers.get(name)
        return self._write_down(name) if number is None else number

    def has(self, name: str) -> bool:
        """Whether a name has a number already."""
        return name in self._numbers

    def _write_down(self, name: str) -> int:
        """Give a new name its number: that of its place in the file."""
        with self._lock:  # writing lets other threads run
            while name not in self._numbers:
                number = self._count + 1
                record = encode_name(name, number)
                size = self._size + len(record)
                # The name is in the file before any row can refer to it.
                if not self._append(record):
                    return NULL_NAME
                if self._count < number:  # else a signal's handler has given that number away
                    self._numbers[name] = self._count = number
                    self._size = size
            return self._numbers[name]

    def _append(self, record: bytes) -> bool:
        """Put a record behind the others, whole or not at all; the list or the disk may be full."""
        try:
            found = os.fstat(self._fd)
            is_ours = _identity(found) == self._file
            # What a signal's handler has broken off would shift all that come after it.
            if is_ours and found.st_size != self._size:
                os.ftruncate(self._fd, self._size)
            if not is_ours:  # its number has become that of a file of the program
                self._why = "the program has closed the file that they are in"
            elif self._size + len(record) > MAX_FILE_BYTES:
                self._why = f"their list has {MAX_FILE_BYTES >> 20} MiB, and takes no more"
            elif os.write(self._fd, record) == len(record):
                return True
            else:
                os.ftruncate(self._fd, self._size)  # as half a name would
                self._why = os.strerror(errno.ENOSPC)
        except OSError as error:
            pass_on()  # a time limit's TimeoutError
            self._why = error.strerror
        self.lost += 1
        return False

    @property
    def problem(self) -> str | None:
        """One sentence about names that are not on record, if there are any."""
        if not self.lost:
            return None
        return f"{self.lost} times a name could not be written down, and is NULL: {self._why}"

    def close(self) -> None:
        """Close the file; what is in it stays."""
        with contextlib.suppress(OSError):  # the program has closed it
            if self._fd >= 0 and _identity(os.fstat(self._fd)) == self._file:
                os.close(self._fd)
        self._fd = -1


def _identity(found: os.stat_result) -> tuple[int, int]:
    """Which file it is, whatever its number is."""
    return found.st_dev, found.st_ino


class RingWriter:
    """The writing end of one ring file.

    The attributes are public for the one caller that cannot afford a call per row, the module
    wrapper; everything else uses `open_row` and `close_row`.

    Attributes:
        open_row: See `Rows`; so are `reopen_row`, `close_row` and `still_holds`.
        buffer: The mapping of the whole file.
        no_closing: Gives closing columns that are all NULL, in layout order, for `close_row`.
        next_word: Gives the marker of the next row: its number times 4.
        slot_mask: ``word & slot_mask`` is the row's slot times 4.
        slot_scale: A slot's width divided by 4.
        lap_ns: What it takes at the very least to write the ring full: a row that was opened less
            than this ago is still in its slot.
    """

    def __init__(self, path: Path, table: Table, rows: int, *, in_c: bool = True) -> None:
        """Make the file and reserve all its space.

        Args:
            rows: The least number of rows it holds; rounded up to a power of two.
            in_c: Whether the C part writes its rows, where it was built.

        Raises:
            RingError: The space cannot be had.
        """
        self.layout = layout_of(table)
        capacity, newest = fitting_rows(path, table, rows), 0
        earlier = self._earlier(path, capacity) if path.exists() else None
        if earlier is not None:
            capacity, newest = earlier
        self._made_small = shortfall(table, rows, capacity)
        self._map(path, capacity, goes_on=earlier is not None)
        self.words = Words((newest + 1) * 4)
        self.next_word: Callable[[], int] = self.words.take
        self.slot_mask = (capacity - 1) << 2
        self.slot_scale = self.layout.row_size >> 2
        self.lap_ns = capacity * _LEAST_ROW_NS
        self._closing_nulls = nulls_of(self.layout)
        self.no_closing: Callable[[], list[Any]] = list(self._closing_nulls).copy
        places = {field.column.name: field.offset for field in self.layout.opening}
        self._start_at = places.get("start_ns", 0)
        self._closing_names = tuple([field.column.name for field in self.layout.closing])
        self._released = 0
        written = self._rows = rows_of(self.layout, self.buffer, self.words, in_c=in_c)
        self.open_row, self.reopen_row = written.open_row, written.reopen_row
        self.close_row, self.still_holds = written.close_row, written.still_holds

    def _map(self, path: Path, capacity: int, *, goes_on: bool) -> None:
        """Make the file, or go on with an earlier one, with all its space reserved, and map it."""
        size = HEADER_SIZE + capacity * self.layout.row_size
        # One without a header is no ring to whoever comes across it.
        unfinished = path if goes_on else path.with_name(f".{path.name}")
        if goes_on:
            path.chmod(_WRITABLE)
        else:
            path.unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
        fd = os.open(unfinished, _AGAIN if goes_on else _CREATE, _WRITABLE)
        try:
            os.posix_fallocate(fd, 0, size)
            self._file = MappedFile(fd, size)
            os.fchmod(fd, _FIXED)
        except OSError as error:
            os.unlink(unfinished)
            reason = f"{size:,} bytes in {path.parent}: {error.strerror}"
            raise RingError(self.layout.table.name, reason) from None
        finally:
            os.close(fd)
        self.buffer = self._file.view
        self.clock_offset_ns = CLOCK_OFFSET_NS
        header = self._write_header(capacity)
        unfinished.rename(path)
        self._file.protect(path, header)

    def _earlier(self, path: Path, capacity: int) -> tuple[int, int] | None:
        """What an earlier agent's file holds, if it can go on: how many rows, the newest number."""
        from .earlier_record import read_ring

        return read_ring(path, self.layout, least=capacity)

    @property
    def problem(self) -> str | None:
        """One sentence where rows are missing, or fewer are held than were asked for."""
        trouble = self._file.trouble()
        return f"{self.layout.table.full_name}: {trouble}" if trouble else self._made_small

    def _write_header(self, capacity: int) -> bytes:
        """Say what the file is; how many rows were dropped stays, where it has been one already."""
        header = encode_header(self.layout, capacity=capacity, clock_offset_ns=self.clock_offset_ns)
        counted = dropped_offset()
        self.buffer[:counted] = header[:counted]
        behind = counted + DROPPED.size
        self.buffer[behind:HEADER_SIZE] = header[behind:]
        return header

    def offset_of(self, word: int) -> int:
        """Where in the file the row of a word lies."""
        return HEADER_SIZE + (word & self.slot_mask) * self.slot_scale

    def open_named(self, values: Mapping[str, Any]) -> int:
        """Open a row with its opening columns by name; returns its word.

        Raises:
            KeyError: One of them is missing.
        """
        return self.open_row(*(values[field.column.name] for field in self.layout.opening))

    def close_named(self, word: int, state: int, values: Mapping[str, object]) -> None:
        """Complete a row with some of its closing columns by name, the others being NULL.

        A row may be completed again, with more than was known the first time.
        """
        closing = map(values.get, self._closing_names, self._closing_nulls)
        self.close_row(word, state, *closing)

    def places_of(self, *names: str) -> list[int]:
        """Where in that order columns are."""
        return [self._closing_names.index(name) for name in names]

    def piece_of(self, *columns: str) -> slice:
        """The piece of that order which some columns are.

        Raises:
            AssertionError: There are others between them.
        """
        first, *_ = places = self.places_of(*columns)
        if places != list(range(first, first + len(places))):
            raise AssertionError(f"{columns} lie apart in {self.layout.table.name}")
        return slice(first, first + len(places))

    def require_closing(self, columns: str) -> None:
        """Make sure that the closing columns are these, for whoever writes them by himself.

        Raises:
            AssertionError: They are others, or in another order.
        """
        if " ".join(self._closing_names) != columns:
            raise AssertionError(f"{self.layout.table.name} is closed otherwise than by {columns}")

    def newest_word(self) -> int:
        """The word of the row opened last; 0 before the first."""
        return self.words.next - 4

    def started_ns(self, word: int) -> int:
        """When a row was opened, by its `start_ns`."""
        start: int = _START.unpack_from(self.buffer, self.offset_of(word) + self._start_at)[0]
        return start

    def newest_of(self, column: str) -> int | None:
        """An integer that the row opened last was opened with; None before the first."""
        word = self.newest_word()
        if not word:
            return None
        field = next(field for field in self.layout.opening if field.column.name == column)
        at = self.offset_of(word) + field.offset
        value: int = struct.unpack_from(f"<{field.code}", self.buffer, at)[0]
        return value

    def count_dropped(self) -> None:
        """Note in the header that a row could not be written, or not whole."""
        at = dropped_offset()
        DROPPED.pack_into(self.buffer, at, DROPPED.unpack_from(self.buffer, at)[0] + 1)

    def release_pages(self, word: int, *, every: int = 1 << 14) -> None:
        """Give pages already written back to the kernel, once per `every` rows.

        The data stays in the file; the process's resident set does not grow with the ring.
        """
        if word - self._released >= every << 2:
            self._released = word
            self._file.release_pages()

    def close(self) -> None:
        """Unmap the file; what is in it stays."""
        self._rows.release()
        self._file.close()
