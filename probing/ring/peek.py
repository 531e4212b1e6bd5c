"""A glance at a ring file: its newest row and its counts, without reading the rest.

Rules of this file: a handful of `pread` calls and no library beyond the standard one, so that
the agent and `probing list` can use it; `ring_reader` reads whole rings. Trusts nothing in the
file; a row caught while it is being written is passed over.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast, get_args

from ..errors import BadRequest, RingError
from ..linux.foreign_files import open_file, read_file
from ..messages.codec import decode
from ..messages.common import OwnLiveTables, OwnTable, TablesAnswer, TableStatus
from ..messages.frozen import dataclass
from ..rundir.folders import ProcessFolder
from ..tables import TABLES, TABLES_BY_NAME, Column, ColumnType, Table
from ..tables.columns import FAILED as FAILED_COLUMN, SEQ
from .format import (
    FAILED,
    HEADER_SIZE,
    MARKER,
    NULL_BOOL,
    NULL_FLOAT_BITS,
    NULL_INT,
    NULL_TEXT,
    RingHeader,
    decode_header,
    is_inline,
)

_NULL_FLOAT = NULL_FLOAT_BITS.to_bytes(8, "little")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_MOST_FOUND = 256
"""How many tables that no version of ours declares are looked for in a run folder."""
_MOST_TOLD = 1 << 20
_NEAR = 64
"""How far around the newest slot to look: rows are numbered before they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row, as stored.

    Attributes:
        seq: Its number.
        state: `OPEN`, `DONE` or `FAILED`.
        values: Stored columns by name; NULL is None, but for texts: those are still numbers, if
            they do not stand in the row itself.
        clock_offset_ns: What has been added to its times, which were the monotonic clock's.
    """

    seq: int
    state: int
    values: dict[str, Any]
    clock_offset_ns: int = 0

    def age_s(self, *, is_of_this_boot: bool = True) -> float:
        """How long ago it was opened; setting the machine's clock meanwhile changes nothing.

        Args:
            is_of_this_boot: Whether its process shares the monotonic clock with this one; if not,
                the time of day must do.
        """
        offset_ns = self.clock_offset_ns
        now_ns = time.perf_counter_ns() + offset_ns if is_of_this_boot else time.time_ns()
        return max(0.0, (now_ns - (self.values["start_ns"] or 0)) * 1e-9)


def as_recorded(path: Path, moment_ns: int) -> int | None:
    """A moment of this boot's monotonic clock as the times in a ring file have it.

    They are of the machine's clock as it was when the process began: setting it meanwhile changes
    nothing. None where the file cannot be read.
    """
    try:
        with RingPeek(path) as ring:
            return moment_ns + ring.header.clock_offset_ns
    except (OSError, RingError):
        return None


class RingPeek:
    """An open ring file; use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open a ring file and read its header.

        Raises:
            OSError: It cannot be opened.
            RingError: It is not a ring file.
        """
        self._fd = open_file(path)
        try:
            self.header: RingHeader = decode_header(
                os.pread(self._fd, HEADER_SIZE, 0), source=path.name
            )
        except (OSError, RingError):
            os.close(self._fd)
            raise

    def __enter__(self) -> RingPeek:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def newest_seq(self) -> int:
        """The number of the newest row; 0 when there is none.

        Numbers grow with the slot up to the newest row and drop by the capacity behind it, so
        a binary search finds the place.
        """
        low, high = 0, self.header.capacity - 1
        first = self._seq_at(0)
        while low < high:
            middle = (low + high + 1) // 2
            if self._seq_at(middle) > first:
                low = middle
            else:
                high = middle - 1
        around = min(2 * _NEAR + 1, self.header.capacity)
        first = (low - _NEAR) % self.header.capacity
        until_end = min(around, self.header.capacity - first)
        return max((0, *self._seqs(first, until_end), *self._seqs(0, around - until_end)))

    def row(self, seq: int, columns: Collection[str] | None = None) -> Row | None:
        """A row by its number; None when it is gone, or is being written right now.

        Args:
            columns: Those that are wanted; None for all.
        """
        header = self.header
        if seq < 1:  # rows are numbered from 1: there is none yet
            return None
        for _ in range(3):
            data = os.pread(self._fd, header.row_size, self._offset(seq % header.capacity))
            if len(data) < header.row_size:
                return None
            begin, end = MARKER.unpack_from(data, 0)[0], MARKER.unpack_from(data, len(data) - 8)[0]
            if begin >> 2 == seq == end >> 2 and end & 3 <= FAILED:
                offset_ns = header.clock_offset_ns
                return Row(
                    seq=seq,
                    state=end & 3,
                    values=self._values(data, columns),
                    clock_offset_ns=offset_ns,
                )
        return None

    def newest(self, most: int, columns: Collection[str] | None = None) -> Iterator[Row]:
        """The newest rows, the newest first; see `row`.

        Args:
            most: How many numbers to look at.
        """
        last = self.newest_seq()
        for seq in range(last, max(0, last - most), -1):
            row = self.row(seq, columns)
            if row is not None:
                yield row

    def _values(self, data: bytes, columns: Collection[str] | None) -> dict[str, Any]:
        """The stored columns of a row."""
        values: dict[str, Any] = {}
        for field in self.header.fields:
            if columns is not None and field.name not in columns:
                continue
            (value,) = struct.unpack_from(f"<{field.code}", data, field.offset)
            if is_inline(field.code):
                is_null = value[:1] == NULL_TEXT
                values[field.name] = (
                    None if is_null else value.rstrip(b"\0").decode(errors="replace")
                )
                continue
            if field.type == "time":
                value += self.header.clock_offset_ns
            is_null = value == NULL_INT or (
                data[field.offset : field.offset + 8] == _NULL_FLOAT
                if field.code == "d"
                else field.type == "bool" and value >= NULL_BOOL
            )
            values[field.name] = None if is_null else value
        return values

    def _offset(self, slot: int) -> int:
        return HEADER_SIZE + slot * self.header.row_size

    def _seq_at(self, slot: int) -> int:
        """The number of the row in a slot; 0 for an empty slot, half a row, or nonsense."""
        return next(iter(self._seqs(slot, 1)), 0)

    def _seqs(self, slot: int, count: int) -> list[int]:
        """The same of so many slots that follow each other, in one read."""
        size, capacity = self.header.row_size, self.header.capacity
        data = os.pread(self._fd, size * count, self._offset(slot))
        found = []
        for at in range(len(data) // size):
            begin = MARKER.unpack_from(data, at * size)[0]
            end = MARKER.unpack_from(data, (at + 1) * size - 8)[0]
            seq: int = begin >> 2
            found.append(seq if seq == end >> 2 and seq % capacity == slot + at else 0)
        return found


def table_status(folder: ProcessFolder, table: Table) -> TableStatus:
    """A table's counts: written = rows + overwritten."""
    own = OwnTable.of(table) if table.origin else None
    if table.kind != "recorded":
        return TableStatus(name=table.name, kind=table.kind, own=own)
    try:
        with RingPeek(folder.ring(table.name)) as ring:
            written = ring.newest_seq()
            rows = min(written, ring.header.capacity)
            oldest = ring.row(written - rows + 1) if rows else None
            start = oldest.values.get("start_ns") if oldest else None
            return TableStatus(
                name=table.name,
                kind=table.kind,
                rows=rows,
                written=written,
                overwritten=written - rows,
                dropped=ring.header.dropped,
                oldest_ns=int(start) if start is not None else None,
                own=own,
            )
    except FileNotFoundError:
        return TableStatus(
            name=table.name, kind=table.kind, rows=0, written=0, overwritten=0, dropped=0, own=own
        )
    except (OSError, RingError) as error:
        return TableStatus(name=table.name, kind=table.kind, problem=str(error), own=own)


def tables_answer(folder: ProcessFolder) -> TablesAnswer:
    """Every table's counts."""
    return TablesAnswer(tables=tuple([table_status(folder, table) for table in tables_of(folder)]))


def tables_of(folder: ProcessFolder) -> tuple[Table, ...]:
    """The tables of a process: ours, then those that its script and its plugins have declared."""
    return (*TABLES, *own_tables(folder))


def own_tables(folder: ProcessFolder) -> tuple[Table, ...]:
    """The tables that the script of a process and its plugins have declared.

    Recorded ones are known by the headers of their rings.
    """
    found: dict[str, Table] = {}
    for table in (*_own_rings(folder), *_own_live(folder)):
        names = [column.name.lower() for column in table.columns]
        are_names = all(_IDENTIFIER.fullmatch(name) for name in (table.name, *names))
        is_new = table.name not in TABLES_BY_NAME and table.name not in found
        if is_new and table.origin and are_names and len(names) == len({*names}):
            found[table.name] = table
    return tuple(found.values())


def _own_rings(folder: ProcessFolder) -> Iterator[Table]:
    """What the headers of rings say that are none of ours."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder.path))
    except OSError:
        return
    stems = [name.removesuffix(".ring") for name in names if name.endswith(".ring")]
    own = [stem for stem in stems if stem not in TABLES_BY_NAME and _IDENTIFIER.fullmatch(stem)]
    for stem in own[:_MOST_FOUND]:
        with contextlib.suppress(OSError, RingError), RingPeek(folder.ring(stem)) as ring:
            if ring.header.table == stem:
                yield table_in(ring.header)


def _own_live(folder: ProcessFolder) -> Iterator[Table]:
    """The live tables that plugins have added."""
    try:
        told = decode(OwnLiveTables, read_file(folder.live_tables, _MOST_TOLD))
    except (OSError, BadRequest):
        return
    kinds = get_args(ColumnType)
    for one in told.tables[:_MOST_FOUND]:
        if all(column.type in kinds for column in one.own.columns):
            yield one.own.table(one.name, "live")


def table_in(header: RingHeader) -> Table:
    """The table of a ring: as this version declares it, else as the ring's header describes it."""
    if header.table in TABLES_BY_NAME:
        return TABLES_BY_NAME[header.table]
    columns = [
        Column(
            name=field.name,
            type=cast("ColumnType", field.type),
            doc=field.doc,
            unit=field.unit,
            values=field.values,
            width=int(field.code[:-1]) if is_inline(field.code) else 0,
        )
        for field in header.fields
    ]
    stored = {column.name for column in columns}
    implicit = (SEQ,) if header.origin else (FAILED_COLUMN, SEQ)
    columns += [column for column in implicit if column.name not in stored]
    return Table(
        name=header.table,
        doc=header.doc,
        kind="recorded",
        columns=tuple(columns),
        origin=header.origin,
    )


def newest_row(folder: ProcessFolder, table: str) -> Row | None:
    """The newest row of a recorded table; None when nothing has been recorded."""
    try:
        with RingPeek(folder.ring(table)) as ring:
            return ring.row(ring.newest_seq())
    except (OSError, RingError):
        return None


def last_step(folder: ProcessFolder) -> Row | None:
    """The newest row of `python.steps`; None when nothing has been recorded."""
    return newest_row(folder, "steps")


def step_duration_before(folder: ProcessFolder) -> float | None:
    """Nanoseconds that the newest completed step took, of the two newest; None if neither is."""
    try:
        with RingPeek(folder.ring("steps")) as ring:
            row = ring.row(ring.newest_seq() - 1)
            return row.values["duration_ns"] if row else None
    except (OSError, RingError):
        return None
