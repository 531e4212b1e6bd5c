"""Iceberg tables over a history in a store: its rows, each once, whoever is killed."""

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

from probing.errors import HistoryBusy, HistoryUnwritable, NoHistory, StoreUnreachable, UsageError
from probing.history.query import History
from probing.history.stores import holding
from probing.history.stores.bucket import bucket_of
from probing.history.stores.holding import held
from probing.history.stores.objects import Store
from probing.rundir.folders import ProcessFolder
from tests.harness.late import Late, late
from tests.harness.ring_writer import trace_values, trace_writer
from tests.harness.s3_server import Line
from tests.harness.targets import DEADLINE_S, clean_env, program_path, run_command

late("moto", reason="of tests/history.txt")
late("pyiceberg", reason="of tests/history.txt")
pytestmark = pytest.mark.usefixtures("no_threads_of_pyiceberg")
sql = Late("pyiceberg.catalog.sql")
committing = Late("probing.history.iceberg.committing")
places = Late("probing.history.iceberg.places")

LOCK = "_probing/iceberg/lock"
DATABASE = "_probing/iceberg/catalog.db"


@pytest.fixture
def export(ended: Callable[..., ProcessFolder], url: str) -> Callable[[int], None]:
    """Exports so many rows of one process, ten at a time."""
    folder, writer, place = ended(), trace_writer(capacity=4096), bucket_of(url, os.environ)

    def export(rows: int) -> None:
        for number in range(writer.written + 1, writer.written + 1 + rows):
            writer.write(**trace_values(number))
            if number % 10 == 0:
                writer.save(folder.ring("torch_trace"))
                place.export(folder, project="a b/%")

    return export


class Reader:
    """Reads Iceberg tables of a history, and knows nothing of probing."""

    def __init__(self, store: Store, database: Path) -> None:
        self._store, self._database = store, database

    def scan(self, name: str = "python.torch_trace", **chosen: Any) -> Any:
        """A table that is about to be read."""
        self._database.write_bytes(self._store.get(DATABASE) or b"")
        return catalog_at("probing", self._database).load_table(name).scan(**chosen)

    def rows(self, name: str = "python.torch_trace", **chosen: Any) -> list[dict[str, Any]]:
        """Its rows."""
        rows: list[dict[str, Any]] = self.scan(name, **chosen).to_arrow().to_pylist()
        return rows

    def numbers(self) -> list[int]:
        """The rows of python.torch_trace, by their numbers."""
        return sorted(row["seq"] for row in self.rows())


def catalog_at(name: str, database: Path) -> Any:
    """A catalog in a file of SQLite, whose tables are in the store."""
    asking = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    return sql.SqlCatalog(name, uri=f"sqlite:///{database}", **asking)


@pytest.fixture
def read(store: Store, tmp_path: Path) -> Reader:
    """What reads the tables of the store."""
    return Reader(store, tmp_path / "read.db")


def counts(url: str, name: str = "python.torch_trace") -> tuple[int, ...]:
    """What a commit says of a table: files that came, that went, that are there, and their rows."""
    (one,) = [one for one in committing.commit(url).tables if one.name == name]
    return (one.added, one.removed, one.files, one.rows)


def test_a_table_has_the_rows_of_the_store(
    export: Callable[[int], None], url: str, line: Line, read: Reader
) -> None:
    """As a query has them; what is new is read, and nothing else; after a compaction the same."""
    export(30)
    assert counts(url) == (3, 0, 3, 30)
    names = "run, rank, pid, step, module, stage, duration, seq, project, job, day"
    history = History(url)
    wanted = history.query(f"SELECT {names} FROM torch_trace ORDER BY seq", timeout_s=60)
    found = sorted(read.rows(), key=lambda row: row["seq"])
    rows = wanted.to_pylist()
    assert [{name: row[name] for name in rows[0]} for row in found] == rows
    paths = [one.file.file_path for one in read.scan().plan_files()]
    assert all(path.startswith(f"{url}/project=a%20b%2F%25/job=") for path in paths), paths

    line.requests.clear()
    assert counts(url) == (0, 0, 3, 30)
    assert not [one for one in line.requests if "table%3D" in one and ".parquet" in one]

    export(10)
    bucket_of(url, os.environ).compact()
    line.requests.clear()
    assert counts(url) == (1, 3, 1, 40)
    asked = [one for one in line.requests if "torch_trace" in one and ".parquet" in one]
    assert len(asked) == 1, asked
    assert read.numbers() == list(range(1, 41))
    assert read.rows(row_filter="day < '1999-01-01'") == []
    assert len(read.rows(row_filter="project = 'a b/%'")) == 40
    assert [row["project"] for row in read.rows("probing.processes")] == ["a b/%"]


def test_columns_that_are_new_and_files_that_are_damaged(
    export: Callable[[int], None], url: str, store: Store, read: Reader
) -> None:
    """A column is gained, NULL before; another type and a torn object are left out and told."""
    export(20)
    committing.commit(url)
    export(40)
    found = sorted(one.name for one in store.objects() if "table=torch_trace/" in one.name)
    for name, column, values in (
        (found[2], "colour", ["red"] * 10),
        (found[3], "depth", None),
        (found[4], "", None),
    ):
        data = store.get(name) or b""
        if not column:
            store.put(name, data[:-30])
            continue
        rows = pq.read_table(pa.BufferReader(data))
        if values is None:
            place = rows.column_names.index(column)
            rows = rows.set_column(place, column, rows[column].cast("string"))
        else:
            rows = rows.append_column(column, pa.array(values))
        new = pa.BufferOutputStream()
        pq.write_table(rows, new)
        store.put(name, new.getvalue().to_pybytes())
    torn, other = sorted(committing.commit(url).notes, key=lambda note: "damaged" not in note)
    assert f"{found[4]} is damaged, and left out" in torn
    assert found[3] in other
    colours = [str(row["colour"]) for row in read.rows()]
    assert sorted(colours) == ["None"] * 30 + ["red"] * 10


@pytest.mark.parametrize("when", ["sizes", "footer"])
def test_what_is_replaced_meanwhile_is_looked_for_anew(
    export: Callable[[int], None], url: str, read: Reader, when: str
) -> None:
    """They were listed, and are gone: the table has the one in their place."""
    export(20)
    place = places.InStore(url)
    first, tables = getattr(place.source, when), place.source.tables(None)

    def replacing(asked: Any) -> Any:
        listed = first(asked) if when == "sizes" else None
        setattr(place.source, when, first)
        assert bucket_of(url, os.environ).compact().new_files
        return first(asked) if listed is None else listed

    setattr(place.source, when, replacing)
    with place.alone(None) as own:
        done = committing.Commit(place, own).run(
            {name: [folder] for name, folder in tables if name == "torch_trace"}
        )
    assert [(one.added, one.files, one.rows) for one in done.tables] == [(1, 1, 20)]
    assert read.numbers() == list(range(1, 21))


def test_of_two_committers_one_wins(
    export: Callable[[int], None],
    url: str,
    store: Store,
    read: Reader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the mark; one that was thought dead keeps nothing of what it does after that."""
    export(20)
    busy = "is being put into Iceberg tables by another process"
    with (
        held(store, LOCK, wait_s=0, busy="it is held"),
        pytest.raises(HistoryBusy, match=busy),
    ):
        committing.commit(url)
    slow = places.InStore(url)
    (folders,) = [{n: [at]} for n, at in slow.source.tables(None) if n == "torch_trace"]
    with slow.alone(None) as own:
        one = committing.Commit(slow, own)
        monkeypatch.setattr(holding, "_LEASE_NS", -1)
        monkeypatch.setattr(holding, "_SAFE_S", 1e9)
        assert counts(url)[0] == 2
        kept = store.get(DATABASE)
        with pytest.raises(HistoryBusy, match=busy):
            one.run(folders)
    assert store.get(DATABASE) == kept
    assert store.objects(LOCK) == []
    export(10)
    assert counts(url) == (1, 0, 3, 30)
    assert read.numbers() == list(range(1, 31))


def test_whoever_is_alone_stays_so(store: Store) -> None:
    """After whatever time, where nobody came; one that comes and goes back is no matter."""
    with held(store, LOCK, wait_s=0, busy="it is held") as alone:
        alone.renew()
        with pytest.raises(HistoryBusy), held(store, LOCK, wait_s=0, busy=""):
            pass
        alone.renew()
        assert len(store.objects(LOCK)) == 1
    assert store.objects(LOCK) == []


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.nightly)])
def test_no_kill_loses_or_doubles_a_row(kills: int, url: str, tmp_path: Path, read: Reader) -> None:
    """What comes after all of them has each row once."""
    argv = [sys.executable, str(program_path("killed_commits")), str(tmp_path / "home"), url]
    env = clean_env(tmp_path / "home", PROBING_HISTORY_SPOOL=str(tmp_path / "spool"))
    done = subprocess.run(
        [*argv, str(kills + 1)], env=env, capture_output=True, text=True,
        timeout=8 * DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["died"] > 0, told
    assert read.numbers() == list(range(1, told["rows"] + 1))


def test_a_catalog_of_the_users(
    export: Callable[[int], None], url: str, tmp_path: Path, store: Store
) -> None:
    """Tables are where its settings say; the store is asked as for the history."""
    export(20)
    env = {
        **clean_env(tmp_path / "home"),
        "PYICEBERG_CATALOG__MINE__URI": f"sqlite:///{tmp_path}/mine.db",
        "PYICEBERG_CATALOG__MINE__WAREHOUSE": f"{url}/lake",
    }
    done = run_command("history", "iceberg", url, "--catalog", "mine", cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "python.torch_trace" in done.stdout
    assert store.get(DATABASE) is None
    table = catalog_at("mine", tmp_path / "mine.db").load_table("python.torch_trace")
    assert table.location().startswith(f"{url}/lake/")
    assert table.scan().to_arrow().num_rows == 20


def test_what_cannot_be_is_one_sentence(
    export: Callable[[int], None], url: str, store: Store, line: Line, read: Reader
) -> None:
    """No history, no such catalog, a catalog that is no database, a store that is away."""
    with pytest.raises(NoHistory):
        committing.commit(url)
    export(10)
    with pytest.raises(UsageError, match="the catalog mine cannot be had"):
        committing.commit(url, catalog="mine")
    store.put(DATABASE, b"no database" * 99)
    with pytest.raises(HistoryUnwritable, match="not a database"):
        committing.commit(url)
    store.remove([DATABASE])
    line.cut = (rb"PUT \S*metadata", 99)
    with pytest.raises(StoreUnreachable, match="cannot be asked"):
        committing.commit(url)
    line.cut = (b"", 0)
    committing.commit(url)
    assert read.numbers() == list(range(1, 11))
