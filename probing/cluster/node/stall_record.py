"""The rows of `probing.stalls` of one process, which outlive the node server that wrote them.

Rules of this file: files only. A ring has one writer, so a node server that comes after another one
copies its rows into a ring of its own and puts that in the place of the first, whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import RingError
from ...ring.format import DONE, NULL_FLOAT, NULL_INT, OPEN
from ...ring.peek import RingPeek, Row
from ...ring.writer import RingWriter
from ...rundir.folders import ProcessFolder
from ...tables import STALLS

_ROWS = 64
_NESTED = 64
"""How many calls may have been open as a stall began."""


class Standing(NamedTuple):
    """A stall that had not ended when the node server before this one did.

    Attributes:
        word: Its row's, in the new ring.
        start_ns: When the last progress was seen, by the monotonic clock.
    """

    word: int
    start_ns: int


class StallRecord:
    """Writes the stalls of a process; the ring is made with the first of them."""

    def __init__(self, folder: ProcessFolder) -> None:
        self._path = folder.ring(STALLS.name)
        self._ring: RingWriter | None = None

    def take_over(self) -> Standing | None:
        """Go on with what an earlier node server has written, if one has."""
        rows = _rows_of(self._path)
        if not rows:
            return None
        try:
            self._ring = self._make()
        except (OSError, RingError):  # no room, or the folder is gone
            return None
        words = [self._copy(self._ring, row) for row in rows]
        if rows[-1].state != OPEN:
            return None
        return Standing(words[-1], _raw_start(rows[-1]))

    def begin(self, values: Mapping[str, object]) -> int | None:
        """Write the row of a stall; None where there is no room for it."""
        try:
            if not self._path.exists():  # another attach has made the folder anew
                self.close()
            self._ring = self._ring or self._make()
        except (OSError, RingError):
            return None
        return self._open(self._ring, values)

    def end(self, word: int, duration_ns: int) -> None:
        """Complete the row of a stall that is over."""
        if self._ring is not None:
            self._ring.close_named(word, DONE, {"duration_ns": duration_ns})

    def close(self) -> None:
        """Let go of the file; what is in it stays."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _make(self) -> RingWriter:
        """A ring in the place of the one that may be there."""
        new = self._path.with_suffix(".new")
        ring = RingWriter(new, STALLS, _ROWS)
        os.replace(new, self._path)
        return ring

    def _copy(self, ring: RingWriter, row: Row) -> int:
        """Write a row once more; returns its word."""
        values: dict[str, object] = {**row.values, "start_ns": _raw_start(row)}
        word = self._open(ring, values)
        if row.state != OPEN:
            ring.close_named(word, row.state, {"duration_ns": row.values["duration_ns"]})
        return word

    def _open(self, ring: RingWriter, values: Mapping[str, object]) -> int:
        """Write the opening columns of a row, NULL where one was not measured."""
        nulls = {"usual_s": NULL_FLOAT}
        names = [place.column.name for place in ring.layout.opening]
        given = (values.get(name) for name in names)
        return ring.open_row(
            *(
                nulls.get(name, NULL_INT) if value is None else value
                for name, value in zip(names, given, strict=True)
            )
        )


def first_progress_ns(paths: Iterable[Path], since_ns: int) -> int | None:
    """When something began or ended first after a moment, as far as rings still tell.

    Args:
        since_ns: By the monotonic clock, as what is returned.
    """
    found = []
    for path in paths:
        try:
            with RingPeek(path) as ring:
                found += _times_after(ring, since_ns)
        except (OSError, RingError):
            continue
    return min(found, default=None)


def _times_after(ring: RingPeek, since_ns: int) -> list[int]:
    """When the first row after a moment began, and when those before it ended."""
    newest = ring.newest_seq()
    first, behind = max(1, newest - ring.header.capacity + 1), newest + 1
    while first < behind:  # rows are opened in the order of their numbers
        middle = (first + behind) // 2
        row = ring.row(middle)
        if row is None or _raw_start(row) <= since_ns:
            first = middle + 1
        else:
            behind = middle
    rows = [ring.row(number) for number in range(max(1, first - _NESTED), first + 1)]
    times = [time for row in rows if row is not None for time in _times_of(row)]
    return [time for time in times if time > since_ns]


def _times_of(row: Row) -> list[int]:
    """When a row began, and when it ended, if it has."""
    start_ns, duration_ns = _raw_start(row), row.values.get("duration_ns")
    return [start_ns] if duration_ns is None else [start_ns, start_ns + int(duration_ns)]


def _raw_start(row: Row) -> int:
    """When a row was opened, by the monotonic clock."""
    return int(row.values["start_ns"] or 0) - row.clock_offset_ns


def _rows_of(path: Path) -> list[Row]:
    """The rows of a ring, oldest first; none where there is no ring."""
    try:
        with RingPeek(path) as ring:
            newest = ring.newest_seq()
            numbers = range(max(1, newest - _ROWS + 1), newest + 1)
            return [row for number in numbers if (row := ring.row(number)) is not None]
    except (OSError, RingError):
        return []
