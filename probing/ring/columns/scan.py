"""A ring file read by the C part, as `reader` reads it by numpy.

Rules of this file: decides what is read, and again; the C part reads it. Both readers show the same
rows and keep the same books (tested), and `reader` says how. Only where the C part was built.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from ..format import RingHeader, StoredField, width_of
from ..native import IN_C
from ..ring_file import ATTEMPTS, MOST_CONTRADICTED, RingFile, fullest

_CHUNK_BYTES = 1 << 18
_LARGE_BYTES = 4 << 20
"""From where on memory is the kernel's, which gives a page when it is first written to: by the
threads that read, and without the interpreter lock."""
_THREAD_BYTES = 16 << 20
"""What of a ring a thread has to read for it to pay."""

Room = bytearray | memoryview


class Raw(NamedTuple):
    """A column as it is stored, in the order of reading."""

    field: StoredField
    width: int
    data: Room


class Columns(NamedTuple):
    """The readable rows of a ring, and what became of the others; see `reader.RingSnapshot`.

    Attributes:
        numbers: The number of each row that was read; 64-bit.
        states: The state of each.
        raw: The columns that were read, by name.
        runs: Where the rows to be shown stand, by their numbers: pairs of the first place of some
            that are side by side and how many those are; 64-bit.
        length: How many are shown.
    """

    header: RingHeader
    numbers: Room
    states: Room
    raw: dict[str, Raw]
    runs: bytes
    length: int
    written: int
    overwritten: int
    dropped: int
    torn: int
    is_cut: bool


def read_columns(
    path: Path,
    columns: Collection[str] | None = None,
    *,
    threads: int = 1,
    is_still: bool = False,
) -> Columns:
    """Read all rows of a ring file; see `reader.read_ring`.

    Args:
        threads: How many may read at a time, at most 16.
        is_still: Whether nobody writes to it any more, so that one reading shows what it holds.

    Raises:
        RingError: The file does not begin with a valid header, or cannot be read.
        OSError: The file cannot be opened.
    """
    with RingFile(path) as ring:
        scan = _Scan(ring, ring.newest(), columns, threads, is_still=is_still)
        scan.read_all()
        scan.settle()
        return scan.result()


def _room(size: int) -> Room:
    """So many bytes, all 0.

    Raises:
        MemoryError: There are not so many.
    """
    if size < _LARGE_BYTES:
        return bytearray(size)
    try:
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except OSError as error:
        raise MemoryError from error


class _Scan:
    """One reading of all slots, from the oldest row on; see `reader._Scan`."""

    def __init__(
        self,
        ring: RingFile,
        newest: int,
        columns: Collection[str] | None,
        threads: int,
        *,
        is_still: bool,
    ) -> None:
        self._ring = ring
        self._capacity = ring.header.capacity
        self._hint = newest
        self._pieces = ring.pieces(newest)
        self._start, self._stop = self._pieces[0] if self._pieces else (0, 0)
        count = sum(stop - first for first, stop in self._pieces)
        self._numbers, self._states, self._empty = _room(8 * count), _room(count), _room(count)
        wanted = [f for f in ring.header.fields if columns is None or f.name in columns]
        widths = [width_of(field.code) for field in wanted]
        self._raw = {
            field.name: Raw(field, width, _room(width * count))
            for field, width in zip(wanted, widths, strict=True)
        }
        self._columns = tuple(
            [(raw.field.offset, raw.width, raw.data) for raw in self._raw.values()]
        )
        self._step, self._is_still = max(1, _CHUNK_BYTES // ring.header.row_size), is_still
        self._is_forged = False
        self._threads = max(1, min(threads, count * ring.header.row_size // _THREAD_BYTES))

    def read_all(self) -> None:
        """Read every slot once (that is, twice back to back, unless nobody writes)."""
        at = 0
        for first, stop in self._pieces:
            self._read(at, first, stop - first)
            at += stop - first

    def settle(self) -> None:
        """Read again what should be there and is not, a few times."""
        for _ in range(ATTEMPTS):
            runs = IN_C.missing(
                self._numbers, self._empty, self._newest(), self._capacity, self._start, self._stop
            )
            if not runs:
                return
            for at, slot, count in runs:
                self._read(at, slot, count)

    def result(self) -> Columns:
        """The rows and the books."""
        found = self._newest()
        oldest = max(0, found - self._capacity)
        numbers, ahead = memoryview(self._numbers).cast("q"), 0
        newest = self._ring.begun(found, self._pieces, lambda place: numbers[place] > oldest)
        if newest < self._capacity:
            ahead = IN_C.ahead(self._numbers, self._empty, oldest, newest, self._start, self._stop)
        runs, count = IN_C.order(self._numbers, found, self._capacity, self._start, self._stop)
        overwritten = max(0, newest - self._capacity)
        return Columns(
            header=self._ring.header,
            numbers=self._numbers,
            states=self._states,
            raw=self._raw,
            runs=runs,
            length=count,
            written=newest + ahead,
            overwritten=overwritten,
            dropped=self._ring.header.dropped,
            torn=newest - overwritten - count + ahead,
            is_cut=self._ring.slots < self._capacity,
        )

    def _newest(self) -> int:
        """The newest number that the rows before it do not contradict."""
        newest: int = IN_C.most(self._numbers)
        for _ in range(0 if self._is_forged else MOST_CONTRADICTED):
            if newest <= self._capacity or self._ring.can_hold(newest):
                return newest
            IN_C.forget(self._numbers, newest)
            newest = IN_C.most(self._numbers)
        self._is_forged = True
        numbers = memoryview(self._numbers).cast("q")
        newest = fullest(numbers, self._capacity)
        for place, number in enumerate(numbers):
            if number > newest:
                numbers[place] = 0
        return newest

    def _read(self, at: int, slot: int, count: int) -> None:
        """Read `count` slots and take over the rows that are whole."""
        self._ring.read_slots(
            self._hint, (at, slot, count), self._step, self._threads,
            self._numbers, self._states, self._empty, self._columns, is_still=self._is_still,
        )  # fmt: skip
