"""A small writer of ring files for tests: by the structs of `probing.ring.format`, nothing else."""

from __future__ import annotations

import mmap
from pathlib import Path

from probing.ring import format as ring
from probing.tables import TABLES_BY_NAME, Table
from tests.harness.name_lists import encode_names

CLOCK_OFFSET_NS = 1_700_000_000_000_000_000
NULLS: dict[str, float] = {"q": ring.NULL_INT, "d": ring.NULL_FLOAT}


class RingWriter:
    """Writes rows of one table into a file that is held in memory until `save`."""

    def __init__(
        self, table: Table, *, capacity: int, clock_offset_ns: int = CLOCK_OFFSET_NS
    ) -> None:
        self.layout = ring.layout_of(table)
        self.capacity, self.clock_offset_ns = capacity, clock_offset_ns
        header = ring.encode_header(self.layout, capacity=capacity, clock_offset_ns=clock_offset_ns)
        self.data: bytearray | mmap.mmap = bytearray(
            header + bytes(capacity * self.layout.row_size)
        )
        self.written = 0

    def open(self, **values: float) -> int:
        """Write an open row and return its number; columns not given hold 0, or NULL."""
        self.written += 1
        marker = self.written * 4 + ring.OPEN
        opening = [values.get(f.column.name, 0) for f in self.layout.opening]
        closing = [NULLS.get(f.code, ring.NULL_NAME) for f in self.layout.closing]
        at = self._offset(self.written)
        self.layout.open_struct.pack_into(self.data, at, marker, *opening, *closing, marker)
        return self.written

    def close(self, number: int, *, failed: bool = False, **values: float) -> None:
        """Complete an open row."""
        closing = [values.get(f.column.name, 0) for f in self.layout.closing]
        marker = number * 4 + (ring.FAILED if failed else ring.DONE)
        at = self._offset(number) + self.layout.close_offset
        self.layout.close_struct.pack_into(self.data, at, *closing, marker)

    def write(self, **values: float) -> int:
        """Write a completed row and return its number."""
        number = self.open(**values)
        self.close(number, failed=False, **values)
        return number

    def save(self, path: Path) -> Path:
        """Put the file in place."""
        path.write_bytes(self.data)
        return path

    def _offset(self, number: int) -> int:
        return ring.HEADER_SIZE + number % self.capacity * self.layout.row_size


def trace_writer(*, capacity: int = 64, rows: int = 0) -> RingWriter:
    """A ring of `torch_trace` with `rows` completed rows: step and start grow with the number."""
    writer = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=capacity)
    for number in range(1, rows + 1):
        writer.write(**trace_values(number))
    return writer


def trace_values(number: int) -> dict[str, float]:
    """The columns of the test row of that number, all derived from it."""
    return {
        "step": number // 4,
        "module": 1 + number % 3,
        "stage": number % 4,
        "class": 4,
        "root": 4,
        "depth": number % 5,
        "recomputed": 0,
        "training": 1,
        "thread_id": 77,
        "start_ns": number * 1000,
        "duration_ns": number * 10,
        "allocated_bytes": number << 20,
    }


def save_names(path: Path, texts: list[str]) -> Path:
    """A names file that holds these texts, the first as number 1."""
    path.write_bytes(encode_names(texts))
    return path
