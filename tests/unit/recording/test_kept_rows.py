"""Rows that are kept from one reading to the next are those that a whole reading gives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from probing.ring import format as ring
from probing.ring.reader import RingSnapshot, read_ring
from probing.server.sql_worker import kept_rows
from probing.server.sql_worker.kept_rows import KeptRows
from probing.tables import STEPS
from tests.harness.ring_writer import RingWriter, trace_writer

pytestmark = pytest.mark.anypython

CAPACITY = 64
ASKED = frozenset({"step", "loss", "duration_ns"})
ROOM = 1 << 20
LATE = 5
"""How many rows behind the newest may still change, in place of the real number."""


@pytest.fixture(autouse=True)
def few_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """In so small a ring only the last rows may."""
    monkeypatch.setattr(kept_rows, "_CHANGING", {"steps": LATE})


def same(one: RingSnapshot, other: RingSnapshot) -> None:
    """Books, numbers, states and the columns that were asked for are equal."""
    assert (one.written, one.overwritten, one.torn) == (
        other.written,
        other.overwritten,
        other.torn,
    )
    assert one.rows.numbers.tolist() == other.rows.numbers.tolist()
    assert one.rows.states.tolist() == other.rows.states.tolist()
    for name, column in other.rows.columns.items():
        assert np.array_equal(one.rows[name], column, equal_nan=True), name


def write(writer: RingWriter, count: int) -> None:
    """Write so many steps, the last of which is still open."""
    for _ in range(count):
        number = writer.open(step=writer.written, start_ns=writer.written * 1000)
        if writer.written > 1:
            writer.close(number - 1, duration_ns=number * 10, loss=number / 7)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 100)),
        st.tuples(st.just("late"), st.integers(0, LATE - 1)),
        st.tuples(st.just("tear"), st.integers(0, CAPACITY - 1)),
        st.tuples(st.just("columns"), st.integers(0, 2)),
    ),
    max_size=12,
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(operations=OPERATIONS)
def test_it_gives_what_a_whole_reading_gives(
    tmp_path: Path, operations: list[tuple[str, int]]
) -> None:
    """However many rows come between two readings, are completed late, or are damaged."""
    writer = RingWriter(STEPS, capacity=CAPACITY)
    path = writer.save(tmp_path / "steps.ring")
    file, kept, asked = path.open("r+b"), KeptRows(ROOM), ASKED
    with file:
        for what, number in operations:
            if what == "write":
                write(writer, number)
            elif what == "late" and writer.written > LATE:
                writer.close(writer.written - 1 - number % (LATE - 1), loss=0.5, duration_ns=7)
            elif what == "tear" and writer.written > LATE:  # the row that is being written
                at = writer._offset(writer.written)
                writer.data[at + writer.layout.row_size - 8 : at + writer.layout.row_size] = bytes(
                    8
                )
            elif what == "columns":
                asked = frozenset(sorted(ASKED)[: number + 1])
            os.pwrite(file.fileno(), writer.data, 0)
            same(kept.read(path, asked, has_ended=False), read_ring(path, asked))


def test_what_is_kept_is_not_read_again(tmp_path: Path) -> None:
    """A row that is settled is told as it was, whatever was done to the file since."""
    writer = RingWriter(STEPS, capacity=CAPACITY)
    write(writer, 40)
    path, kept = writer.save(tmp_path / "steps.ring"), KeptRows(ROOM)
    before = kept.read(path, ASKED, has_ended=False)
    writer.close(3, loss=99.0, duration_ns=1)
    with path.open("r+b") as file:
        file.write(writer.data)
    assert kept.read(path, ASKED, has_ended=False).rows["loss"][2] == before.rows["loss"][2]
    assert kept.read(path, None, has_ended=False).rows["loss"][2] == 99.0, "other columns"


@pytest.mark.parametrize("has_ended", [False, True])
def test_other_tables_are_kept_of_the_ended_alone(tmp_path: Path, has_ended: bool) -> None:
    """Rows of any table may be completed late while the process runs, and never after it."""
    writer = trace_writer(capacity=CAPACITY, rows=40)
    path, kept = writer.save(tmp_path / "torch_trace.ring"), KeptRows(ROOM)
    kept.read(path, None, has_ended=has_ended)
    writer.close(3, duration_ns=5)
    with path.open("r+b") as file:
        file.write(writer.data)
    found = kept.read(path, None, has_ended=has_ended)
    assert found.rows["duration_ns"][2] == (30 if has_ended else 5)


def test_a_file_made_anew_is_read_anew(tmp_path: Path) -> None:
    """Another file at the same place has nothing to do with the one before."""
    kept, path = KeptRows(ROOM), tmp_path / "steps.ring"
    for count in (40, 41):
        writer = RingWriter(STEPS, capacity=CAPACITY)
        write(writer, count)
        path.unlink(missing_ok=True)
        (tmp_path / f"other{count}").write_bytes(b"holds the number of the file before")
        writer.save(path)
        same(kept.read(path, ASKED, has_ended=True), read_ring(path, ASKED))


def test_it_holds_no_more_than_it_may(tmp_path: Path) -> None:
    """The ring that was read longest ago goes first; one that is too large is not kept."""
    writer = RingWriter(STEPS, capacity=CAPACITY)
    write(writer, 40)
    paths = [writer.save(tmp_path / f"{number}.ring") for number in range(3)]
    each = CAPACITY * (9 + 4 + 8 + 8)
    kept = KeptRows(2 * each)
    for path in paths:
        kept.read(path, ASKED, has_ended=True)
    assert list(kept._kept) == paths[1:]
    assert sum(one.nbytes for one in kept._kept.values()) <= 2 * each
    small = KeptRows(9 * CAPACITY)
    same(small.read(paths[0], ASKED, has_ended=True), read_ring(paths[0], ASKED))
    assert not small._kept
    assert ring.DONE in small.read(paths[0], ASKED, has_ended=True).rows.states
