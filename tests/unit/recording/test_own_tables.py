"""Tables that a script declares: what is refused at once, and what comes out of their rings."""

from __future__ import annotations

import copy
import pickle
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probing
from probing.errors import BadTable
from probing.history.tables import HISTORY_TABLES
from probing.ring.arrow_tables import RecordedTable
from probing.ring.format import DONE, NULL_TEXT, OPEN, decode_header, encode_header, layout_of
from probing.ring.peek import RingPeek, own_tables, table_status
from probing.ring.writer import RingWriter
from probing.rundir.folders import ProcessFolder
from probing.script import marks
from probing.script.own_tables import ScriptTable
from probing.sql.process_columns import added_columns
from probing.tables import TABLES_BY_NAME, Table

pytestmark = pytest.mark.anypython


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    """Each test declares for itself."""
    yield
    marks.own_tables.clear()


WRONG: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no name": ("", {"a": int}, {}, "a name is lower-case letters"),
    "upper case": ("Rewards", {"a": int}, {}, "a name is lower-case letters"),
    "a path": ("../names", {"a": int}, {}, "a name is lower-case letters"),
    "no text": (7, {"a": int}, {}, "a name is lower-case letters"),
    "taken": ("steps", {"a": int}, {}, "taken by python.steps"),
    "taken by us": ("sources", {"a": int}, {}, "taken by probing.sources"),
    "no columns": ("t", {}, {}, "its columns are a dictionary"),
    "a list": ("t", ["a"], {}, "its columns are a dictionary"),
    "a type": ("t", {"a": list}, {}, "column a: a type is int, float, bool or str, and list"),
    "no type": ("t", {"a": "int"}, {}, "column a: a type is int, float, bool or str, and 'int'"),
    "a word": ("t", {"a b": int}, {}, "column 'a b': a name is letters"),
    "twice": ("t", {"a": int, "A": int}, {}, "there are two of that name"),
    "ours": ("t", {"start_ns": int}, {}, "every table has one of that name"),
    "a history's": ("t", {"run": int}, {}, "a history of runs has one of that name"),
    "a table of a history's": ("exports", {"a": int}, {}, "a history of runs has a table of"),
    "over many": ("t", {"Rank": int, "process_rank": int}, {}, "over many processes there are two"),
    "no rows": ("t", {"a": int}, {"rows": 0}, "rows is a whole number from 1"),
    "half a row": ("t", {"a": int}, {"rows": 1.5}, "rows is a whole number from 1"),
    "long texts": ("t", {"a": str}, {"text_bytes": 4096}, "text_bytes is a whole number"),
    "wide": ("t", {f"a{i}": str for i in range(9)}, {"text_bytes": 1024}, "fewer texts"),
    "many": ("t", {f"a{i}": int for i in range(61)}, {}, "it has 61 columns, and may have 60"),
}


def test_the_names_of_a_historys_tables_are_refused() -> None:
    """All of them, also of those that come later."""
    for table in HISTORY_TABLES:
        with pytest.raises(BadTable, match="a history of runs has"):
            probing.table(table.name, {"a": int})


def test_a_column_keeps_its_name_over_many_processes_whatever_its_case() -> None:
    """SQL does not mind the case of `Rank`, so the process's is called otherwise."""
    mine = probing.table("mine", {"Rank": int, "process_host": str}).declared
    assert [column.name for column in added_columns(mine)] == ["process_rank", "host", "pid", "job"]
    assert (mine.columns[1].name, mine.columns[2].name) == ("Rank", "process_host")


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_a_table_is_one_clear_error(kind: str) -> None:
    """Agent or none, the declaration says what is wrong, and nothing is declared."""
    name, columns, more, told = WRONG[kind]
    with pytest.raises(BadTable, match=r"^table ") as caught:
        probing.table(name, columns, **more)
    assert told in caught.value.message
    assert isinstance(caught.value, probing.ProbingError)
    assert marks.own_tables == {}


def test_a_table_is_declared_once() -> None:
    """The same again is the same table; the same name with other columns is an error."""
    first = probing.table("rewards", {"reward": float})
    assert probing.table("rewards", {"reward": float}) is first
    with pytest.raises(BadTable, match="declared already, with other columns"):
        probing.table("rewards", {"reward": int})
    first.add(reward=1, nonsense=object())  # nobody records
    assert repr(first).startswith("<table python.rewards (step int64, reward float64, ")


def test_what_holds_a_table_can_be_copied_while_it_is_recorded() -> None:
    """A copy is the same table; in another process, or from a file, it is declared there."""
    table = probing.table("rewards", {"reward": float}, rows=64)
    table.write = struct.Struct("q").pack_into  # type: ignore[assignment] # cannot be copied
    holder = {"rewards": table}
    assert copy.deepcopy(holder)["rewards"] is copy.copy(table) is table
    data = pickle.dumps(holder)
    assert pickle.loads(data)["rewards"] is table
    marks.own_tables.clear()
    opened: list[ScriptTable] = []
    marks.attend_tables(opened.append)
    try:
        found = pickle.loads(data)["rewards"]
    finally:
        marks.leave_tables()
    assert (found.declared, found.rows, opened) == (table.declared, 64, [found])
    assert marks.own_tables == {"rewards": found}


def test_a_table_from_a_file_whose_name_is_taken_by_now_is_not_recorded() -> None:
    """It takes rows, as its script expects, and is none of the tables here."""
    table = probing.table("rewards", {"reward": float})
    old = ScriptTable(table.declared._replace(name="steps"), 64)
    pickle.loads(pickle.dumps(old)).add(reward=1.0)
    assert list(marks.own_tables) == ["rewards"]


def test_no_more_than_64_tables() -> None:
    """A script that declares in a loop is told so."""
    for number in range(64):
        probing.table(f"t{number}", {"a": int})
    with pytest.raises(BadTable, match="may be no more"):
        probing.table("t64", {"a": int})
    assert probing.table("t0", {"a": int})


def test_every_column_of_a_table_that_just_fits_is_in_its_header(tmp_path: Path) -> None:
    """60 columns with long names, and rows of nearly 4,000 bytes, can be written and read."""
    for columns, width in (
        ({f"{'c' * 60}{i}": int for i in range(60)}, 8),
        (dict.fromkeys("abc", str), 1024),
    ):
        table = probing.table(f"t{width}", columns, text_bytes=width, rows=64, doc="x" * 900)
        header = encode_header(layout_of(table.declared), capacity=64, clock_offset_ns=0)
        decoded = decode_header(header, source="t")
        assert [f.name for f in decoded.fields if f.name in columns] == list(columns)
        assert len(decoded.doc) == 500


TEXTS = ["", "a", "Grüße", "x" * 16, "é" * 8, "a\0b", "a'; DROP --", None]


def test_texts_in_rows_come_out_as_they_went_in(tmp_path: Path) -> None:
    """Also empty ones, with NULL apart; what is not complete, or damaged, is no error."""
    folder = ProcessFolder(tmp_path, 1, 1)
    table = probing.table("notes", {"note": str}, text_bytes=16, rows=64).declared
    ring = RingWriter(folder.ring("notes"), table, 64)
    for text in TEXTS:
        word = ring.open_named({"step": 1, "start_ns": 2, "thread_id": 3})
        ring.close_row(word, DONE, NULL_TEXT if text is None else text.encode())
    ring.open_named({"step": 1, "start_ns": 2, "thread_id": 3})
    broken = ring.open_named({"step": 1, "start_ns": 2, "thread_id": 3})
    ring.close_row(broken, DONE, b"bad \xe9")
    rows = load(folder, table)
    assert [row["note"] for row in rows] == [*TEXTS, None, "bad \ufffd"]
    with RingPeek(folder.ring("notes")) as peek:
        told = [row.values["note"] for row in peek.newest(20)][::-1]
    assert told[: len(TEXTS)] == TEXTS
    ring.close()


def test_tables_are_found_by_their_headers(tmp_path: Path) -> None:
    """Of the files in a folder those count that are rings of a script's, by their own names."""
    folder = ProcessFolder(tmp_path, 1, 1)
    table = probing.table("rewards", {"reward": float}, doc="What it got.").declared
    writers = [
        RingWriter(folder.ring("rewards"), table, 64),
        RingWriter(folder.ring("steps"), TABLES_BY_NAME["steps"], 64),
        RingWriter(folder.ring("other"), table, 64),  # not called by its name
        RingWriter(folder.ring("future"), TABLES_BY_NAME["steps"]._replace(name="future"), 64),
    ]
    folder.ring("garbage").write_bytes(b"garbage" * 4000)
    folder.ring("x y").write_bytes(b"")
    (found,) = own_tables(folder)
    assert found.name == "rewards"
    assert (found.doc, found.origin) == ("What it got.", "script")
    names = ["step", "reward", "thread_id", "start_ns", "seq"]
    assert [column.name for column in found.columns] == names
    status = table_status(folder, found)
    assert (status.written, status.rows) == (0, 0)
    told = status.table()
    assert told is not None
    assert [column.name for column in told.columns] == names
    assert own_tables(ProcessFolder(tmp_path / "nowhere", 1, 1)) == ()
    for writer in writers:
        writer.close()


HOSTILE: Mapping[str, Table] = {
    "a name with a quote": Table(
        name="rewards", doc="", kind="recorded", origin="script",
        columns=(TABLES_BY_NAME["steps"].columns[0]._replace(name='a"; DROP'),),
    ),
    "two of a name": Table(
        name="rewards", doc="", kind="recorded", origin="script",
        columns=tuple(
            TABLES_BY_NAME["steps"].columns[0]._replace(name=name) for name in ("a", "A")
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_header_that_no_script_can_have_made_is_passed_over(kind: str, tmp_path: Path) -> None:
    """Its names would go into SQL."""
    folder = ProcessFolder(tmp_path, 1, 1)
    writer = RingWriter(folder.ring("rewards"), HOSTILE[kind], 64)
    writer.close()
    assert own_tables(folder) == ()


@pytest.mark.parametrize("code", ["0s", "-8s", "4096s", "s", "xs", "8p"])
def test_a_width_that_cannot_be_is_a_damaged_header(code: str, tmp_path: Path) -> None:
    """Nothing in a header is trusted."""
    from probing.ring import format as ring_format

    item = {"name": "a", "type": "text", "code": code, "offset": 8, "unit": None, "doc": ""}
    with pytest.raises((KeyError, ValueError)):
        ring_format._decode_field({**item, "values": []}, 4096)


def test_an_empty_table_has_its_columns(tmp_path: Path) -> None:
    """Before the first row SQL knows its types."""
    folder = ProcessFolder(tmp_path, 1, 1)
    table = probing.table("notes", {"note": str, "n": int}, rows=64).declared
    RingWriter(folder.ring("notes"), table, 64).close()
    assert load(folder, table) == []


def load(folder: ProcessFolder, table: Table) -> list[dict[str, Any]]:
    """The rows of a table."""
    rows: list[dict[str, Any]] = RecordedTable(table, folder).load(None).to_pylist()
    return rows


def test_open_rows_of_other_kinds_are_not_mistaken() -> None:
    """The array of texts has NULL where a row is open, whatever its bytes."""
    from probing.ring.arrow_tables import inline_texts

    values = np.array([b"ab", b"cd"], "S8")
    states = np.array([OPEN, DONE])
    assert inline_texts(values, is_open=states == OPEN).to_pylist() == [None, "cd"]
    assert inline_texts(values[:0], is_open=states[:0] == OPEN).to_pylist() == []
