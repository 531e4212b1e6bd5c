"""A ring file, read as it stands: by `pread` only, whatever its writer is doing.

Rules of this file: never maps the file (one that shrinks would kill the reader), trusts no
length and no marker, and gives a number for everything it could not show. The writer may be
running, stopped, killed or another version; the file may be cut short or damaged.

Each piece is read twice, back to back. A row counts when both readings are the same, its two
markers name the same number and that number belongs into its slot. Whatever else should be
there is read again up to `ATTEMPTS` times and is ``torn`` if it never settles. The reading
starts at the oldest row, so that rows come out in ascending order without being sorted, and
columns are taken out of each piece while it is in the processor's cache.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RingError
from ..linux.foreign_files import open_file
from .format import DONE, FAILED, HEADER_SIZE, MARKER, MOST_BYTES, RingHeader, decode_header

CHUNK_BYTES = 1 << 19
ATTEMPTS = 3
_BEHIND = 4
"""How many rows behind one are asked whether they are newer: some may be in the making."""
_NEAR = 64
"""How many rows before the newest are asked whether it can be: some may not be written yet."""

_NUMPY_CODES = {"q": "<i8", "d": "<f8", "I": "<u4", "B": "u1"}
_CODES_OF_TYPE = {
    "int64": "qIB", "time": "q", "float64": "d", "text": "I", "bool": "B", "enum": "B"
}  # fmt: skip

_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRows:
    """Rows in ascending order of their numbers, each column an array of its own.

    Attributes:
        numbers: The number of each row, counted from 1 since the process started.
        states: `ring.OPEN`, `ring.DONE` or `ring.FAILED`.
        columns: The columns that were read, as they are stored.
    """

    numbers: npt.NDArray[np.int64]
    states: npt.NDArray[np.uint8]
    columns: Mapping[str, _Array]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, column: str) -> _Array:
        return self.columns[column]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSnapshot:
    """The readable rows of a ring, and what became of the others.

    The books balance: ``written == len(rows) + overwritten + torn``.

    Attributes:
        written: Rows written since the process started.
        overwritten: Rows that made room for newer ones.
        dropped: Rows that the writer could not write; they have no number.
        torn: Rows that are damaged, cut off, or never settled.
        is_cut: Whether the file is shorter than its header says.
    """

    header: RingHeader
    rows: RingRows
    written: int
    overwritten: int
    dropped: int
    torn: int
    is_cut: bool = False


def read_ring(path: Path, columns: Collection[str] | None = None) -> RingSnapshot:
    """Read all rows of a ring file.

    Args:
        columns: The stored columns to take; None for all. One that is not there is left out.

    Raises:
        RingError: The file does not begin with a valid header, or cannot be read.
        OSError: The file cannot be opened.
    """
    with _RingFile(path) as ring:
        scan = _Scan(ring, ring.newest(), columns)
        scan.read_all()
        scan.settle()
        return scan.snapshot()


class _RingFile:
    """An open ring file: its header, and readings of its slots."""

    def __init__(self, path: Path) -> None:
        self._source = path.name
        self._fd = open_file(path)
        try:
            self.header = decode_header(self._pread(HEADER_SIZE, 0), source=self._source)
            self.dtype = _dtype_of(self.header, self._source)
            size = self._size()
        except BaseException:
            os.close(self._fd)
            raise
        self.slots = min(self.header.capacity, (size - HEADER_SIZE) // self.header.row_size)

    def __enter__(self) -> _RingFile:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)

    def _size(self) -> int:
        size = os.fstat(self._fd).st_size
        if size > MOST_BYTES:
            raise RingError(self._source, f"it has more than {MOST_BYTES:,} bytes")
        return size

    def _pread(self, length: int, offset: int) -> bytes:
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise RingError(self._source, f"it cannot be read ({error.strerror})") from error

    def fill(self, buffer: npt.NDArray[np.uint8], slot: int) -> int:
        """Read slots into a buffer, from `slot` on; returns how many bytes there were."""
        view = buffer.data
        offset, done = HEADER_SIZE + slot * self.header.row_size, 0
        while done < len(view):
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                raise RingError(self._source, f"it cannot be read ({error.strerror})") from error
            if got == 0:
                break
            done += got
        return done

    def read_row(self, slot: int) -> bytes | None:
        """The bytes of a slot that holds a whole row; None when it holds none."""
        size = self.header.row_size
        for _ in range(ATTEMPTS):
            offset = HEADER_SIZE + slot * size
            row = self._pread(size, offset)
            if len(row) == size and row == self._pread(size, offset):
                begin, end = _markers(row)
                number = begin >> 2
                whole = not begin & 3 and end - begin in (0, DONE, FAILED)
                if whole and number and number % self.header.capacity == slot:
                    return row
        return None

    def newest(self) -> int:
        """About the newest number, by halving; 0 when there is none or damage hides it.

        It is only where to start reading: nothing breaks when it is wrong.
        """
        if self.slots < 1:
            return 0
        generation = self._number(0) // self.header.capacity
        low, high = 0, self.slots - 1
        while low < high:
            middle = (low + high + 1) // 2
            number = self._number(middle)
            if number and number // self.header.capacity >= generation:
                low = middle
            else:
                high = middle - 1
        return self._number(low)

    def can_hold(self, newest: int) -> bool:
        """Whether the rows before it do not all say that a number is nonsense.

        Damage can give both markers of a row the same number, and one that is far too large would
        make all the others look as if they had been overwritten.
        """
        is_contradicted = False
        for number in range(newest - 1, newest - 2 - min(_NEAR, self.slots // 4), -1):
            slot = number % self.header.capacity
            held = self._number(slot) if slot < self.slots else 0
            if held >= number:
                return True
            is_contradicted |= held > 0
        return not is_contradicted

    def has_begun(self, number: int) -> bool:
        """Whether a number has been given, by its slot and the rows behind it as they are now."""
        slot = number % self.header.capacity
        begin = self._pread(MARKER.size, HEADER_SIZE + slot * self.header.row_size)
        held = MARKER.unpack(begin)[0] if len(begin) == MARKER.size else 0
        if not held & 3 and held >> 2 >= number and (held >> 2) % self.header.capacity == slot:
            return True
        return any(
            self._number(later % self.header.capacity) >= later
            for later in range(number + 1, number + 1 + min(_BEHIND, self.slots // 4))
            if later % self.header.capacity < self.slots
        )

    def _number(self, slot: int) -> int:
        row = self.read_row(slot)
        return _markers(row)[0] >> 2 if row else 0


class _Scan:
    """One reading of all slots, from the oldest row on.

    Rows are kept in the order of reading: the number each slot holds (0 where it holds no whole
    row), its state, its columns, and whether it has never been written.
    """

    def __init__(self, ring: _RingFile, newest: int, columns: Collection[str] | None) -> None:
        self._ring = ring
        self._capacity = ring.header.capacity
        self._row_size = ring.header.row_size
        self._hint = newest
        start = (newest + 1) % self._capacity if newest >= self._capacity else 0
        pieces = [(start, ring.slots), (0, min(start, ring.slots))]
        self._pieces = [(first, stop) for first, stop in pieces if first < stop]
        count = sum(stop - first for first, stop in self._pieces)
        self._numbers = np.zeros(count, np.int64)
        self._states = np.zeros(count, np.uint8)
        self._empty = np.zeros(count, np.bool_)
        wanted = [f.name for f in ring.header.fields if columns is None or f.name in columns]
        self._columns = {name: np.empty(count, ring.dtype[name]) for name in wanted}
        self._step = max(1, CHUNK_BYTES // self._row_size)
        self._first = np.empty(self._step * self._row_size, np.uint8)
        self._second = np.empty(self._step * self._row_size, np.uint8)

    def read_all(self) -> None:
        """Read every slot once (that is, twice back to back)."""
        at = 0
        for first, stop in self._pieces:
            for slot in range(first, stop, self._step):
                count = min(self._step, stop - slot)
                self._read(at, slot, count)
                at += count

    def settle(self) -> None:
        """Read again what should be there and is not, a few times."""
        for _ in range(ATTEMPTS):
            places, slots = self._missing()
            if not len(places):
                return
            starts = np.flatnonzero(np.diff(slots, prepend=-2) != 1)
            for first, stop in zip(starts, [*starts[1:], len(places)], strict=True):
                for i in range(first, stop, self._step):
                    self._read(int(places[i]), int(slots[i]), min(self._step, stop - i))

    def snapshot(self) -> RingSnapshot:
        """The rows and the books."""
        newest, found = self._found()
        newest = self._begun(newest, found)
        order = _order(self._numbers, found)
        ahead = 0
        damaged = ~found & ~self._empty
        if newest < self._capacity and damaged.any():
            ahead = int(np.count_nonzero(damaged & (self._slots() > newest)))
        overwritten = max(0, newest - self._capacity)
        rows = RingRows(
            numbers=_take(self._numbers, order),
            states=_take(self._states, order),
            columns={name: _take(column, order) for name, column in self._columns.items()},
        )
        return RingSnapshot(
            header=self._ring.header,
            rows=rows,
            written=newest + ahead,
            overwritten=overwritten,
            dropped=self._ring.header.dropped,
            torn=newest - overwritten - len(rows) + ahead,
            is_cut=self._ring.slots < self._capacity,
        )

    def _slots(self) -> npt.NDArray[np.int64]:
        """The slot of each row, in the order of reading."""
        return np.concatenate([np.arange(*piece) for piece in self._pieces])

    def _found(self) -> tuple[int, npt.NDArray[np.bool_]]:
        """The newest number, and which rows are among the last `capacity` up to it."""
        newest = int(self._numbers.max(initial=0))
        while newest > self._capacity and not self._ring.can_hold(newest):
            self._numbers[self._numbers == newest] = 0
            newest = int(self._numbers.max(initial=0))
        return newest, self._numbers > max(0, newest - self._capacity)

    def _begun(self, newest: int, found: npt.NDArray[np.bool_]) -> int:
        """The newest number that was given, at least; never less than an earlier reading said.

        The writer may be completing the newest row as it is read, or may have come round to it and
        be writing over it. Then it is torn, though it was whole before. Its begin marker tells
        that it has been there, or, where that is gone, the rows behind it, which are newer by now.
        """
        if newest < self._capacity:
            return newest
        (start, stop), *_ = self._pieces
        for number in range(newest + 1, newest + 1 + _BEHIND):
            slot = number % self._capacity
            place = slot - start if slot >= start else stop - start + slot
            if slot >= stop or found[place] or not self._ring.has_begun(number):
                return number - 1
        return newest + _BEHIND

    def _missing(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where a row should be that was not found: places in the order of reading, and slots."""
        newest, found = self._found()
        missing = ~found
        complete = len(found) - np.count_nonzero(missing) == min(newest, self._capacity)
        if complete and not (missing & ~self._empty).any():
            return np.empty(0, np.int64), np.empty(0, np.int64)
        slots = self._slots()
        if newest < self._capacity:
            missing &= ((slots > 0) & (slots <= newest)) | ~self._empty
        places = np.flatnonzero(missing)
        return places, slots[places]

    def _read(self, at: int, slot: int, count: int) -> None:
        """Read `count` slots twice and take over the rows that are whole."""
        size = count * self._row_size
        first, second = self._first[:size], self._second[:size]
        got = self._ring.fill(first, slot)
        if got == size and not first[:8].any() and not first.view(np.uint64).any():
            self._numbers[at : at + count] = 0
            self._empty[at : at + count] = True
            return
        got = min(got, self._ring.fill(second, slot))
        whole = got // self._row_size
        used = whole * self._row_size
        rows = first[:used].view(self._ring.dtype)
        same = first[:used].view(np.uint64) == second[:used].view(np.uint64)
        here = slice(at, at + whole)
        self._judge(rows, here, slot)
        self._states[here] = rows["end"] & 3
        for name, column in self._columns.items():
            column[here] = rows[name]
        self._numbers[at + whole : at + count] = 0
        self._empty[at + whole : at + count] = False
        if not same.all():
            moved = at + np.flatnonzero(~same.reshape(whole, -1).all(axis=1))
            self._numbers[moved] = 0
            self._empty[moved] = False

    def _judge(self, rows: _Array, here: slice, slot: int) -> None:
        """Note the numbers of the slots whose markers are right."""
        begin = rows["begin"]
        right = (begin ^ rows["end"]) <= FAILED
        oldest = self._hint - (self._hint - slot) % self._capacity
        expected = np.arange(oldest, oldest + len(rows), dtype=np.int64)
        if oldest > 0 and (right & (begin.view(np.int64) == expected * 4)).all():
            self._numbers[here] = expected
            self._empty[here] = False
            return
        numbers = begin.view(np.int64) >> 2
        slots = np.arange(slot, slot + len(rows))
        right &= (begin & 3 == 0) & (numbers > 0) & (numbers % self._capacity == slots)
        self._numbers[here] = np.where(right, numbers, 0)
        words = rows.view(np.uint64).reshape(len(rows), self._row_size // 8)  # there may be none
        self._empty[here] = ~words.any(axis=1)


_Order = slice | npt.NDArray[np.int64] | None


def _order(numbers: npt.NDArray[np.int64], shown: npt.NDArray[np.bool_]) -> _Order:
    """How to take the shown rows out in ascending order; a slice copies nothing.

    They nearly always are in that order and side by side. A writer that ran on while the
    first slots were being read leaves its newest rows in front.
    """
    if shown.all():
        places: _Order = None
        ordered = numbers
    else:
        found = np.flatnonzero(shown)
        if len(found) and found[-1] - found[0] + 1 == len(found):
            places = slice(int(found[0]), int(found[-1]) + 1)
        else:
            places = found
        ordered = numbers[places]
    if not np.any(ordered[1:] <= ordered[:-1]):
        return places
    ranks = np.argsort(ordered, kind="stable")
    return ranks if places is None else np.flatnonzero(shown)[ranks]


def _take(values: _Array, order: _Order) -> _Array:
    """The values in that order."""
    return values if order is None else values[order]


def _dtype_of(header: RingHeader, source: str) -> np.dtype[Any]:
    """The layout of a row for numpy."""
    names = ["begin", *(f.name for f in header.fields), "end"]
    known = all(f.code in _CODES_OF_TYPE[f.type] for f in header.fields)
    if header.row_size % 8 or not known or len(set(names)) < len(names):
        raise RingError(source, "its header describes rows that cannot be")
    return np.dtype(
        {
            "names": names,
            "formats": ["<u8", *(_NUMPY_CODES[f.code] for f in header.fields), "<u8"],
            "offsets": [0, *(f.offset for f in header.fields), header.row_size - 8],
            "itemsize": header.row_size,
        }
    )


def _markers(row: bytes) -> tuple[int, int]:
    """The begin and the end marker."""
    return MARKER.unpack_from(row, 0)[0], MARKER.unpack_from(row, len(row) - 8)[0]
