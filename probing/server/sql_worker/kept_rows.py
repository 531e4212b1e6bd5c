"""Rows that were read before: a ring that is asked again is read only where it has changed.

Rules of this file: for a helper that answers one statement after the other, on one thread. What is
kept is what cannot change any more: rows of a process that has ended, and of tables whose writers
come back to new rows only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ring.reader import RingRows, RingSnapshot, read_ring, read_rows_since
from ...ring.ring_file import RingFile

_CHANGING = {"steps": 1024}
"""Tables whose rows do not change any more once so many newer ones are there: of the steps, 64 at
most wait for a number of the device (`LateRows` of the agent)."""
_NEW = 8
"""Rows are read anew as a whole where more than one in so many has come since."""

_Array = npt.NDArray[Any]


class KeptRows:
    """The rows of a few rings.

    Args:
        most_bytes: What all of them may hold together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[Path, _Kept] = {}

    def read(self, path: Path, columns: Collection[str] | None, *, has_ended: bool) -> RingSnapshot:
        """As `read_ring`, by what is kept of it.

        Args:
            has_ended: Whether the process has, so that nothing of it changes any more.

        Raises:
            RingError: The file does not begin with a valid header, or cannot be read.
            OSError: The file cannot be opened.
        """
        with RingFile(path) as ring:
            before = self._kept.pop(path, None)
            wanted = {f.name for f in ring.header.fields if columns is None or f.name in columns}
            if before is not None and before.identity != ring.identity:
                before = None
            if before is not None and wanted <= before.columns.keys():
                found = before.go_on(ring)
                if found is not None:
                    self._keep(path, before, found, has_ended=has_ended)
                    return found
            all_columns = wanted | (before.columns.keys() if before is not None else set())
            if _bytes_of(ring, all_columns) > self._most_bytes:
                all_columns = wanted
            found = read_ring(path, all_columns)
            may_be_kept = not found.is_cut and (has_ended or ring.header.table in _CHANGING)
            if may_be_kept and _bytes_of(ring, all_columns) <= self._most_bytes:
                self._keep(path, _Kept(ring, found.rows), found, has_ended=has_ended)
            return found

    def _keep(self, path: Path, kept: _Kept, found: RingSnapshot, *, has_ended: bool) -> None:
        """Keep what cannot change; where that is too much, let go of what was read longest ago."""
        changing = 0 if has_ended else _CHANGING[found.header.table]
        kept.settle(found.written - changing)
        self._kept[path] = kept
        while sum(one.nbytes for one in self._kept.values()) > self._most_bytes:
            self._kept.pop(next(iter(self._kept)))


class _Kept:
    """The rows of one ring.

    Attributes:
        identity: Of the file.
        nbytes: What they hold, with the room beside them.
        columns: Their columns. Behind the settled rows lie those that may still change, which are
            read again each time, and room for more.
    """

    def __init__(self, ring: RingFile, rows: RingRows) -> None:
        self.identity = ring.identity
        self.nbytes = _bytes_of(ring, rows.columns)
        self.columns = dict(rows.columns)
        self._numbers, self._states = rows.numbers, rows.states
        self._first, self._settled, self._end = 0, 0, len(rows)

    def settle(self, number: int) -> None:
        """Take the rows up to that number for such as do not change any more."""
        self._settled = max(self._first, self._place_after(number))

    def go_on(self, ring: RingFile) -> RingSnapshot | None:
        """These rows and those that have come since; None where it is better to read all."""
        capacity = ring.header.capacity
        if self._settled == self._first or ring.slots < capacity:
            return None
        last, newest = int(self._numbers[self._settled - 1]), ring.newest()
        if not last <= newest <= last + capacity // _NEW:
            return None
        tail = read_rows_since(ring, last, newest, self.columns.keys())
        if tail.written > last + capacity // 2:
            return None
        overwritten = max(0, tail.written - capacity)
        self._append(tail.rows, int(np.searchsorted(tail.rows.numbers, last, "right")))
        self._first = self._place_after(overwritten)
        length = self._end - self._first
        return dataclasses.replace(
            tail,
            rows=self._rows(),
            overwritten=overwritten,
            torn=tail.written - overwritten - length,
        )

    def _place_after(self, number: int) -> int:
        """Where the rows begin that are newer."""
        return int(np.searchsorted(self._numbers[: self._end], number, "right"))

    def _append(self, rows: RingRows, skipped: int) -> None:
        """Put rows behind the settled ones, all but the first few."""
        end = self._settled + len(rows) - skipped
        if end > len(self._numbers):
            held = self._settled - self._first
            size = (held + len(rows)) * (_NEW + 1) // _NEW
            kept = slice(self._first, self._settled)
            self._numbers = _moved(self._numbers[kept], size)
            self._states = _moved(self._states[kept], size)
            self.columns = {name: _moved(one[kept], size) for name, one in self.columns.items()}
            arrays: list[_Array] = [self._numbers, self._states, *self.columns.values()]
            self.nbytes = sum(one.nbytes for one in arrays)
            self._first, self._settled, end = 0, held, held + len(rows) - skipped
        new = slice(self._settled, end)
        self._numbers[new], self._states[new] = rows.numbers[skipped:], rows.states[skipped:]
        for name, column in self.columns.items():
            column[new] = rows.columns[name][skipped:]
        self._end = end

    def _rows(self) -> RingRows:
        """All of them; no copies."""
        here = slice(self._first, self._end)
        return RingRows(
            numbers=self._numbers[here],
            states=self._states[here],
            columns={name: one[here] for name, one in self.columns.items()},
        )


def _moved(values: _Array, size: int) -> _Array:
    """The same in a larger piece of memory."""
    larger = np.empty(size, values.dtype)
    larger[: len(values)] = values
    return larger


def _bytes_of(ring: RingFile, columns: Iterable[str]) -> int:
    """What so many columns of all its rows hold, with their numbers and states."""
    each = 9 + sum(ring.dtype[name].itemsize for name in columns)
    return each * ring.header.capacity
