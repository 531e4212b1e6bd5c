"""A ring file, read as it stands: by `pread` only, whatever its writer is doing.

Rules of this file: never maps the file (one that shrinks would kill the reader), trusts no
length and no marker, and gives a number for everything it could not show. The writer may be
running, stopped, killed or another version; the file may be cut short or damaged.

Each piece is read twice, back to back; once by the C part, where the writer has ended. A row counts
when both readings are the same, its two markers name the same number and that number belongs into
its slot. Whatever else should be there is read again up to `ATTEMPTS` times and is ``torn`` if it
never settles. The reading starts at the oldest row, so that rows come out in ascending order
without being sorted, and columns are taken out of each piece while it is in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..messages.frozen import dataclass
from .format import FAILED, RingHeader
from .ring_file import ATTEMPTS, MOST_CONTRADICTED, RingFile, fullest

CHUNK_BYTES = 1 << 19

_Array = npt.NDArray[Any]
_Order = slice | npt.NDArray[np.int64] | None


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
    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return self.columns[column]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSnapshot:
    """The readable rows of a ring, and what became of the others.

    The books balance: ``written == len(rows) + overwritten + torn``.

    Attributes:
        written: Rows written since the process started.
        overwritten: Rows that made room for newer ones.
        dropped: Rows that the writer could not write, which have no number, or not whole.
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
    with RingFile(path) as ring:
        scan = _Scan(ring, ring.newest(), columns)
        scan.read_all()
        scan.settle()
        return scan.snapshot()


class _Scan:
    """One reading of all slots, from the oldest row on.

    Rows are kept in the order of reading: the number each slot holds (0 where it holds no whole
    row), its state, its columns, and whether it has never been written.
    """

    def __init__(self, ring: RingFile, newest: int, columns: Collection[str] | None) -> None:
        self._ring = ring
        self._capacity = ring.header.capacity
        self._row_size = ring.header.row_size
        self._hint = newest
        self._pieces = ring.pieces(newest)
        count = sum(stop - first for first, stop in self._pieces)
        self._numbers = np.zeros(count, np.int64)
        self._states = np.zeros(count, np.uint8)
        self._empty = np.zeros(count, np.bool_)
        wanted = [f.name for f in ring.header.fields if columns is None or f.name in columns]
        self._columns = {name: np.empty(count, ring.dtype[name]) for name in wanted}
        self._is_forged = False
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
        newest = self._ring.begun(newest, self._pieces, lambda place: bool(found[place]))
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
        newest = self._newest()
        return newest, self._numbers > max(0, newest - self._capacity)

    def _newest(self) -> int:
        """The newest number that the rows before it do not contradict."""
        newest = int(self._numbers.max(initial=0))
        for _ in range(0 if self._is_forged else MOST_CONTRADICTED):
            if newest <= self._capacity or self._ring.can_hold(newest):
                return newest
            self._numbers[self._numbers == newest] = 0
            newest = int(self._numbers.max(initial=0))
        self._is_forged = True
        newest = fullest(self._numbers.tolist(), self._capacity)
        self._numbers[self._numbers > newest] = 0
        return newest

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
