"""Exported tables as Iceberg tables: the rows of the folder, each once, whoever is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probing.errors import HistoryBusy, HistoryUnwritable, NoHistory, UsageError
from probing.history.compaction.folder import compact_folder
from probing.history.export import export_process
from probing.history.files import locked
from probing.history.layout import iceberg_file
from probing.rundir.folders import ProcessFolder
from tests.harness.late import Late, late
from tests.harness.ring_writer import trace_values, trace_writer
from tests.harness.targets import DEADLINE_S, clean_env, program_path, run_command

late("pyiceberg", reason="of tests/history.txt")
pytestmark = pytest.mark.usefixtures("no_threads_of_pyiceberg")
catalog = Late("probing.history.iceberg.catalog")
committing = Late("probing.history.iceberg.committing")
places = Late("probing.history.iceberg.places")

Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a history will be; what is special in a path is in it."""
    return tmp_path / "it's [a] 100% history*"


@pytest.fixture
def exported(ended: Callable[..., ProcessFolder], root: Path) -> Callable[[int], ProcessFolder]:
    """Exports so many rows of one process, ten at a time."""
    folder, writer = ended(), trace_writer(capacity=4096)

    def export(rows: int) -> ProcessFolder:
        for number in range(writer.written + 1, writer.written + 1 + rows):
            writer.write(**trace_values(number))
            if number % 10 == 0:
                writer.save(folder.ring("torch_trace"))
                export_process(folder, root, project="a b/%")
        return folder

    return export


def own(root: Path) -> Any:
    """The catalog of a history."""
    place = root / "_probing" / "iceberg"
    return catalog.own_catalog(str(root), place / "catalog.db", f"file://{place}/warehouse", {})


def rows_in(root: Path, table: str = "torch_trace", schema: str = "python") -> list[dict[str, Any]]:
    """The rows of an Iceberg table, by a reader that knows nothing of probing."""
    found = catalog.table_in(own(root), schema, table)
    rows: list[dict[str, Any]] = found.scan().to_arrow().to_pylist()
    return rows


def test_a_table_has_the_rows_of_the_folder(
    exported: Callable[[int], ProcessFolder], root: Path, ask: Ask
) -> None:
    """With the names of its folders as columns; after a compaction, and done again, the same."""
    exported(30)
    (done,) = [
        one for one in committing.commit(str(root)).tables if one.name == "python.torch_trace"
    ]
    assert (done.added, done.removed, done.files, done.rows) == (3, 0, 3, 30)
    names = "run, rank, pid, step, module, stage, duration, seq, project, job, day"
    wanted = ask(f"SELECT {names} FROM torch_trace ORDER BY seq")
    found = sorted(rows_in(root), key=lambda row: row["seq"])
    assert [{name: row[name] for name in wanted[0]} for row in found] == wanted
    assert [
        (one.added, one.removed) for one in committing.commit(str(root)).tables if one.files
    ] == [(0, 0)] * 4
    exported(10)
    compact_folder(root)
    (done,) = [
        one for one in committing.commit(str(root)).tables if one.name == "python.torch_trace"
    ]
    assert (done.added, done.removed, done.files, done.rows) == (1, 3, 1, 40)
    assert sorted(row["seq"] for row in rows_in(root)) == list(range(1, 41))
    table = catalog.table_in(own(root), "python", "torch_trace")
    assert len(list(table.scan(row_filter="day < '1999-01-01'").plan_files())) == 0
    assert table.scan(row_filter="project = 'a b/%'").to_arrow().num_rows == 40
    assert [row["project"] for row in rows_in(root, "processes", "probing")] == ["a b/%"]


def test_a_column_that_is_new_is_gained(
    exported: Callable[[int], ProcessFolder], root: Path
) -> None:
    """NULL in the files before; one of another type is left out and told."""
    exported(20)
    committing.commit(str(root))
    exported(20)
    paths = sorted(root.glob("project=*/job=*/table=torch_trace/*/*.parquet"))[2:]
    for path, column, values in ((paths[0], "colour", ["red"] * 10), (paths[1], "depth", None)):
        rows = pq.read_table(path, partitioning=None)
        if values is None:
            place = rows.column_names.index(column)
            rows = rows.set_column(place, column, rows[column].cast("string"))
        else:
            rows = rows.append_column(column, pa.array(values))
        pq.write_table(rows.replace_schema_metadata(pq.read_schema(path).metadata), path)
    (note,) = committing.commit(str(root)).notes
    assert str(paths[1]) in note
    assert sorted(str(row["colour"]) for row in rows_in(root)) == ["None"] * 20 + ["red"] * 10


def test_what_is_not_finished_comes_later(
    exported: Callable[[int], ProcessFolder], root: Path
) -> None:
    """What no state counts, or may be told anew, is left; a damaged file is told."""
    exported(20)
    (state,) = (root / "_probing" / "state").glob("*.json")
    before = state.read_text()
    folder = exported(10)
    after = state.read_text()
    state.write_text(before)
    found = {one.name: (one.files, one.later) for one in committing.commit(str(root)).tables}
    assert found["python.torch_trace"] == (2, 1)
    state.write_text(after.replace('"whole": true', '"whole": false'))
    found = {one.name: (one.files, one.later) for one in committing.commit(str(root)).tables}
    assert (found["python.torch_trace"], found["probing.processes"]) == ((3, 0), (0, 1))
    state.write_text(after)
    committing.commit(str(root))
    assert export_process(folder, root).notes == ()
    assert [
        (one.added, one.removed) for one in committing.commit(str(root)).tables if one.files
    ] == [(0, 0)] * 4
    torn = next(root.glob("project=*/job=*/table=torch_trace/*/*.parquet"))
    torn.write_bytes(torn.read_bytes()[:-30])
    (note,) = committing.commit(str(root)).notes
    assert f"{torn} is damaged, and left out" in note
    assert len(rows_in(root)) == 20


def test_of_two_committers_one_wins(exported: Callable[[int], ProcessFolder], root: Path) -> None:
    """By the lock; where that does not work, by the catalog. Nothing is lost, or there twice."""
    exported(20)
    with (
        locked(root, iceberg_file(root)),
        pytest.raises(HistoryBusy, match="is being put into Iceberg tables by another process"),
    ):
        committing.commit(str(root))
    committing.commit(str(root))
    exported(10)

    loser = own(root)
    stale = {name: catalog.table_in(loser, "python", name) for name in ("torch_trace",)}
    committing.commit(str(root))

    class Stale:
        """A catalog whose tables were loaded before the other one has committed."""

        def load_table(self, name: tuple[str, str]) -> Any:
            return stale.get(name[1]) or loser.load_table(name)

    folder = next(root.glob("project=*/job=*/table=torch_trace"))
    with pytest.raises(HistoryBusy, match="were changed meanwhile"):
        committing.Commit(places.InFolder(root), Stale()).run({"torch_trace": [str(folder)]})
    assert committing.commit(str(root)).notes == ()
    assert sorted(row["seq"] for row in rows_in(root)) == list(range(1, 31))


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.nightly)])
def test_no_kill_loses_or_doubles_a_row(tmp_path: Path, kills: int) -> None:
    """What comes after all of them has each row once."""
    root = tmp_path / "history"
    argv = [sys.executable, str(program_path("killed_commits")), str(tmp_path / "home"), str(root)]
    done = subprocess.run(
        [*argv, str(kills)], env=clean_env(tmp_path / "home"), capture_output=True, text=True,
        timeout=4 * DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["died"] > 0, told
    assert sorted(row["seq"] for row in rows_in(root)) == list(range(1, told["rows"] + 1))


def test_what_cannot_be_is_one_sentence(
    exported: Callable[[int], ProcessFolder], root: Path, tmp_path: Path
) -> None:
    """No history, an odd path, no such catalog, a catalog that is no database, a user's own."""
    with pytest.raises(NoHistory):
        committing.commit(str(tmp_path / "nowhere"))
    exported(10)
    os.symlink(root, tmp_path / "a?b")
    with pytest.raises(UsageError, match=r"has a \? or a #"):
        committing.commit(str(tmp_path / "a?b"))
    with pytest.raises(UsageError, match="the catalog mine cannot be had"):
        committing.commit(str(root), catalog="mine")
    (root / "_probing" / "iceberg" / "catalog.db").write_text("no database" * 99)
    with pytest.raises(HistoryUnwritable, match="not a database"):
        committing.commit(str(root))
    env = {
        **clean_env(tmp_path / "home"),
        "PYICEBERG_CATALOG__MINE__URI": f"sqlite:///{tmp_path}/mine.db",
        "PYICEBERG_CATALOG__MINE__WAREHOUSE": f"file://{tmp_path}/mine",
    }
    done = run_command("history", "iceberg", str(root), "--catalog", "mine", cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "python.torch_trace" in done.stdout
