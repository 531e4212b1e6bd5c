"""Tables for the SQL tests: a recorded folder written by hand, and providers that watch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from probing.messages import common as wire
from probing.ring.arrow_tables import live_to_arrow, schema_of
from probing.rundir.folders import ProcessFolder
from probing.tables import BACKTRACE, STEPS, TABLES_BY_NAME, TORCH_TRACE, Table
from tests.harness.ring_writer import RingWriter, save_names, trace_values, trace_writer

NAMES = ["fc1", "fc2", "blocks.0.attn", "Net"]


def recorded_folder(path: Path, *, rows: int = 100) -> ProcessFolder:
    """A run folder with a trace of `rows` completed rows, an open and a failed one, and steps."""
    path = path / "4242-1"
    path.mkdir()
    folder = ProcessFolder(path, 4242, 1)
    trace = trace_writer(capacity=1024, rows=rows)
    trace.close(trace.open(**trace_values(rows + 1)), failed=True, duration_ns=5)
    trace.open(**trace_values(rows + 2))
    trace.save(folder.ring("torch_trace"))
    steps = RingWriter(STEPS, capacity=64)
    for step in range(rows // 4):
        steps.write(step=step, start_ns=step * 4000, duration_ns=4000, optimizer=4)
    steps.save(folder.ring("steps"))
    save_names(folder.names, NAMES)
    return folder


class WatchedTable:
    """Rows in memory, and a record of every time they were loaded."""

    def __init__(self, table: Table, rows: pa.Table) -> None:
        self.table = table
        self.rows = rows
        self.loads: list[frozenset[str] | None] = []

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """Only what is asked for: the other columns are NULL."""
        self.loads.append(columns)
        schema = schema_of(self.table)
        arrays = [
            self.rows.column(field.name)
            if columns is None or field.name in columns
            else pa.nulls(self.rows.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


def watched_trace() -> WatchedTable:
    """A trace of 40 rows that differ in every column the tests use."""
    schema = schema_of(TORCH_TRACE)
    rows = [
        {
            "step": i // 8,
            "module": NAMES[i % 3],
            "stage": ("forward", "backward")[i % 2],
            "duration": i / 1000,
            "allocated": 100.0 + i,
            "class": NAMES[3],
            "depth": i % 4,
            "failed": i % 7 == 0,
            "start_ns": i * 1000,
            "duration_ns": i * 1_000_000,
            "seq": i + 1,
        }
        for i in range(40)
    ]
    return WatchedTable(TORCH_TRACE, pa.Table.from_pylist(rows, schema=schema))


def watched_steps() -> WatchedTable:
    """Five steps."""
    rows = [{"step": i, "duration": i / 10, "seq": i + 1} for i in range(5)]
    return WatchedTable(STEPS, pa.Table.from_pylist(rows, schema=schema_of(STEPS)))


def watched_backtrace() -> WatchedTable:
    """Two frames."""
    live = wire.LiveRows(
        table="backtrace",
        columns=("func", "file", "lineno", "depth", "is_main"),
        rows=(("step", "train.py", 12, 0, True), ("main", "train.py", 40, 1, True)),
    )
    return WatchedTable(TABLES_BY_NAME[BACKTRACE.name], live_to_arrow(live))
