"""Stored rows become Arrow rows: types, units and NULLs as the tables declare them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from probing.errors import BadRequest, RingError
from probing.messages import common as wire
from probing.ring import format as ring
from probing.ring.arrow_tables import RecordedTable, live_to_arrow, schema_of, to_arrow
from probing.ring.columns.batch import Batch, batch_of
from probing.ring.columns.scan import read_columns
from probing.ring.names import joined
from probing.ring.native import IN_C
from probing.ring.reader import read_ring
from probing.rundir.folders import ProcessFolder
from probing.tables import BACKTRACE, RECORDED_TABLES, STEPS, TABLES, TORCH_TRACE, Column, Table
from tests.harness.ring_writer import CLOCK_OFFSET_NS, RingWriter, trace_values, trace_writer
from tests.harness.sql_fixtures import NAMES, recorded_folder

TEXTS = [None, *NAMES]


def load_trace(writer: RingWriter, path: Path, columns: set[str] | None = None) -> pa.Table:
    """The rows of a ring as a table, checked to be sound."""
    file = writer.save(path / "x.ring")
    table = to_arrow(read_ring(file), TEXTS, columns)
    table.validate(full=True)
    if IN_C is not None:
        assert_same(table, batch_of(read_columns(file), TEXTS, columns))
    return table


def assert_same(table: pa.Table, batch: Batch) -> None:
    """The C part made the same of it, to the bit of every number."""
    ours = pa.table(batch)
    ours.validate(full=True)
    assert ours.schema.equals(table.schema)
    assert ours.num_rows == table.num_rows
    for name in table.column_names:
        one, other = (_plain(each[name]) for each in (table, ours))
        assert one.equals(other), name


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose values can be compared: no NaN is equal to itself."""
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    if pa.types.is_floating(column.type):
        return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    return column


def load(table: Table, folder: ProcessFolder, columns: frozenset[str] | None = None) -> pa.Table:
    """A recorded table, as both ways show it."""
    notes: list[str] = []
    loaded = RecordedTable(table, folder, notes).load(columns)
    if IN_C is not None:
        others: list[str] = []
        assert_same(loaded, RecordedTable(table, folder, others).load_batch(columns))
        assert notes == others
    return loaded


def test_both_ways_show_the_same_of_every_table(tmp_path: Path) -> None:
    """All recorded tables of a process, whole and some of their columns, with damaged names."""
    folder = recorded_folder(tmp_path)
    names = folder.names.read_bytes()
    for damaged in (names, names[:40], names[:9] + b"\xff" + names[10:]):
        folder.names.write_bytes(damaged)
        for table in RECORDED_TABLES:
            load(table, folder)
            load(table, folder, frozenset(c.name for c in table.columns[::2]))


def test_a_large_table_comes_in_pieces(tmp_path: Path) -> None:
    """Rows that are open or damaged, at the borders of pieces too, are the same in both ways."""
    writer = trace_writer(capacity=20_000, rows=19_990)
    at = ring.HEADER_SIZE + writer.layout.row_size * 2
    for number in (1, 7, 8, 100, 16_380, 16_384, 16_385, 16_386, 16_400, *range(17_000, 17_300, 2)):
        writer.data[at + number * writer.layout.row_size] ^= 1
    for number in range(9):
        writer.open(**trace_values(number))
    assert len(load_trace(writer, tmp_path)) == 19_990 + 9 - 159


def test_texts_in_rows_come_in_pieces(tmp_path: Path) -> None:
    """What stands in rows is made at once, and each piece has its part of it."""
    columns = (
        Column(name="note", type="text", doc="A text.", width=8),
        Column(name="size", type="int64", doc="A number."),
    )
    table = Table(name="undeclared", doc="", kind="recorded", columns=columns, origin="a test")
    writer = RingWriter(table, capacity=40_000)
    for number in range(18_000):
        note = ring.NULL_TEXT if number % 7 == 0 else b"n%d" % (number % 11)
        writer.write(note=note, size=number)  # type: ignore[arg-type]
    loaded = load_trace(writer, tmp_path)
    assert loaded["note"].null_count == 2572
    assert loaded.slice(16_385, 2)["note"].to_pylist() == ["n6", "n7"]
    if IN_C is not None:  # DuckDB, too, finds each piece's part
        batch = batch_of(read_columns(tmp_path / "x.ring"), TEXTS, None)
        found = duckdb.from_arrow(batch).filter("size >= 16000").select("size, note").fetchall()
        assert found == list(
            zip(*(loaded[name].to_pylist()[16_000:] for name in ("size", "note")), strict=True)
        )


def test_a_completed_row_has_every_declared_column(tmp_path: Path) -> None:
    """Names, words, units and times come out as they are documented."""
    table = load_trace(trace_writer(rows=2), tmp_path)
    assert table.schema.equals(schema_of(TORCH_TRACE), check_metadata=True)
    assert table.to_pylist()[1] == {
        "step": 0,
        "module": "blocks.0.attn",
        "stage": "optimizer",
        "duration": pytest.approx(20e-9),
        "allocated": 2.0,
        "class": "Net",
        "root": "Net",
        "model": "Net",
        "depth": 2,
        "recomputed": False,
        "training": True,
        "failed": False,
        "thread_id": 77,
        "start_ns": CLOCK_OFFSET_NS + 2000,
        "duration_ns": 20,
        "allocated_bytes": 2 << 20,
        "seq": 2,
    }


def test_what_closes_a_row_is_null_while_it_is_open(tmp_path: Path) -> None:
    """The state decides, even when a closing column has been written already."""
    writer = trace_writer(rows=1)
    number = writer.open(**trace_values(2))
    at = ring.HEADER_SIZE + number * writer.layout.row_size + writer.layout.close_offset
    writer.data[at : at + 16] = b"\x01" * 16
    row = load_trace(writer, tmp_path).to_pylist()[1]
    closing = {"duration", "duration_ns", "allocated", "allocated_bytes", "failed"}
    assert {name for name, value in row.items() if value is None} == closing


def test_sentinels_are_null(tmp_path: Path) -> None:
    """NULL integers, names, words and booleans come out as NULL; so do the columns made of them."""
    writer = trace_writer()
    writer.write(
        module=0, stage=200, training=2, start_ns=ring.NULL_INT, allocated_bytes=ring.NULL_INT
    )
    row = load_trace(writer, tmp_path).to_pylist()[0]
    nulls = {name for name, value in row.items() if value is None}
    assert {"module", "stage", "training", "allocated_bytes", "allocated"} <= nulls
    assert "duration" not in nulls


def test_a_name_that_is_not_in_the_file_yet_is_null(tmp_path: Path) -> None:
    """A number beyond the names file leads nowhere."""
    writer = trace_writer()
    writer.write(module=5)
    assert load_trace(writer, tmp_path)["module"].to_pylist() == [None]


@given(st.floats(width=64))
def test_a_measured_nan_is_not_null(tmp_path_factory: pytest.TempPathFactory, x: float) -> None:
    """Every float but the one sentinel survives, NaN included."""
    table = Table(
        name="undeclared",
        doc="",
        kind="recorded",
        columns=(Column(name="loss", type="float64", doc="A measurement."),),
    )
    writer = RingWriter(table, capacity=4)
    writer.write(loss=x)
    writer.write(loss=ring.NULL_FLOAT)
    loaded = load_trace(writer, tmp_path_factory.mktemp("nan"))
    first, second = loaded["loss"].to_pylist()
    assert second is None
    assert first == x or (math.isnan(first) and math.isnan(x))


def test_columns_that_are_not_needed_are_null(tmp_path: Path) -> None:
    """The schema stays; what was not asked for is NULL."""
    table = load_trace(trace_writer(rows=3), tmp_path, {"module", "duration"})
    assert table.schema.equals(schema_of(TORCH_TRACE))
    filled = {name for name in table.schema.names if table[name].null_count == 0}
    assert filled == {"module", "duration"}


def test_an_older_writers_missing_column_is_null(tmp_path: Path) -> None:
    """A ring without a column that is declared today is still that table."""
    older = Table(
        name="torch_trace",
        doc="",
        kind="recorded",
        columns=tuple(c for c in TORCH_TRACE.columns if c.name not in ("depth", "duration_ns")),
    )
    writer = RingWriter(older, capacity=8)
    writer.write(**trace_values(1))
    row = load_trace(writer, tmp_path).to_pylist()[0]
    assert (row["depth"], row["duration"], row["step"]) == (None, None, 0)
    assert row["allocated_bytes"] == 1 << 20


def test_without_a_ring_a_recorded_table_is_empty(tmp_path: Path) -> None:
    """A process that never recorded gives no rows, with the right types."""
    for table in RECORDED_TABLES:
        loaded = load(table, ProcessFolder(tmp_path, 1, 1))
        assert loaded.num_rows == 0
        assert loaded.schema.equals(schema_of(table))


def test_without_a_names_file_names_are_null(tmp_path: Path) -> None:
    """Rows are shown even when their names are lost."""
    folder = recorded_folder(tmp_path)
    folder.names.unlink()
    loaded = load(STEPS, folder, frozenset({"step", "optimizer"}))
    assert loaded["optimizer"].null_count == loaded.num_rows > 0


def test_a_ring_that_may_not_be_opened_says_so(tmp_path: Path) -> None:
    """What is no regular file is an error that names it."""
    folder = ProcessFolder(tmp_path, 1, 1)
    folder.ring("steps").symlink_to(folder.ring("steps"))
    with pytest.raises(
        RingError, match=r"steps\.ring: it cannot be read \(it is not a regular file"
    ):
        RecordedTable(STEPS, folder).load(None)


def test_every_field_carries_its_meaning() -> None:
    """Each Arrow field of each table holds the declared sentence and unit."""
    for table in TABLES:
        for field, column in zip(schema_of(table), table.columns, strict=True):
            assert field.metadata[b"doc"].decode() == column.doc
            assert field.metadata.get(b"unit", b"").decode() == (column.unit or "")


def test_live_rows_take_the_declared_types() -> None:
    """Missing columns are NULL, unknown ones are left out, no rows keep the types."""
    live = wire.LiveRows(
        table="backtrace", columns=("func", "lineno", "new"), rows=(("f", 3, 1), (None, None, 2))
    )
    table = live_to_arrow(live)
    assert table.schema.equals(schema_of(BACKTRACE))
    assert table.select(["func", "lineno", "file"]).to_pylist() == [
        {"func": "f", "lineno": 3, "file": None},
        {"func": None, "lineno": None, "file": None},
    ]
    empty = live_to_arrow(wire.LiveRows(table="threads", columns=(), rows=()))
    assert empty.schema.field("cpu_s").type == pa.float64()


def test_live_texts_without_utf8_are_read() -> None:
    """The path of a script in a folder of another encoding has `?` for what it cannot say."""
    row = (os.fsdecode(b"/caf\xe9/train.py"), None)
    live = wire.LiveRows(table="backtrace", columns=("file", "func"), rows=(row,))
    table = live_to_arrow(live)
    assert table.select(["file", "func"]).to_pylist() == [{"file": "/caf?/train.py", "func": None}]


@pytest.mark.parametrize(
    "live",
    [
        wire.LiveRows(table="no_such", columns=(), rows=()),
        wire.LiveRows(table="backtrace", columns=("lineno",), rows=((1, 2),)),
        wire.LiveRows(table="backtrace", columns=("lineno",), rows=(("x",),)),
        wire.LiveRows(table="backtrace", columns=("lineno",), rows=((2**70,),)),
    ],
)
def test_live_rows_that_make_no_sense_are_refused(live: wire.LiveRows) -> None:
    """An answer that does not fit its table is an error, not a crash."""
    with pytest.raises(BadRequest):
        live_to_arrow(live)


def test_a_text_of_two_parts_is_shown_in_two_columns(tmp_path: Path) -> None:
    """The class of a root, and its name where it has one of its own."""
    texts = [text and joined(text, "generator") for text in TEXTS]
    snapshot = read_ring(trace_writer(rows=2).save(tmp_path / "x.ring"))
    row = to_arrow(snapshot, texts, {"root", "model"}).to_pylist()[1]
    assert (row["root"], row["model"]) == ("Net", "generator")
