"""The runs of a history as a database of PEP 249."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.fs import LocalFileSystem

from probing import dbapi
from probing.errors import ProbingError, QueryTimedOut, SqlError, SqlRefused, SqlTooLarge
from probing.history.export import export_process
from probing.history.scanning import store
from probing.history.stores.objects import Store
from probing.messages import common as wire
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import trace_writer

pytestmark = pytest.mark.anypython


@pytest.fixture
def kept(ended: Callable[..., ProcessFolder], root: Path) -> str:
    """A history of two runs."""
    for start_time in (77, 78):
        folder = ended(start_time, started_ns=1_700_000_000_000_000_000 + start_time * 10**9)
        trace_writer(capacity=64, rows=20).save(folder.ring("torch_trace"))
        export_process(folder, root)
    return str(root)


def test_kept_runs_are_a_database(kept: str) -> None:
    """Rows of all runs, with values for question marks; nothing is written."""
    with dbapi.connect(history=kept) as connection:
        cursor = connection.execute("SELECT count(*) FROM torch_trace WHERE seq > ?", [5])
        assert cursor.fetchall() == [(30,)]
        with pytest.raises(dbapi.NotSupportedError):
            cursor.execute("DROP TABLE torch_trace")
        with pytest.raises(dbapi.ProgrammingError, match="torch_traces"):
            cursor.execute("FROM torch_traces")


@pytest.mark.nightly
def test_pandas_reads_it(kept: str) -> None:
    """By the way that it has for any connection, of which it warns."""
    pandas = pytest.importorskip("pandas", reason="of tests/history.txt")
    with dbapi.connect(history=kept) as connection, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pandas only supports SQLAlchemy")
        sql = "SELECT run, max(seq) AS last FROM torch_trace GROUP BY run ORDER BY run"
        rows = pandas.read_sql(sql, connection)
    assert list(rows.columns) == ["run", "last"]
    assert rows["last"].tolist() == [20, 20]


def test_what_is_left_out_is_warned_of(kept: str, root: Path) -> None:
    """The rows of the other file are there."""
    torn = next(root.glob("project=*/job=*/table=torch_trace/*/*-77-*.parquet"))
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-30])
    with dbapi.connect(history=kept) as connection:
        for _ in range(2):
            with pytest.warns(UserWarning, match="is damaged, and left out"):
                cursor = connection.execute("SELECT count(*) FROM torch_trace")
            assert cursor.fetchone() == (20,)
        torn.write_bytes(whole)
        assert connection.execute("SELECT count(*) FROM torch_trace").fetchone() == (40,)


@pytest.mark.parametrize("is_store", [False, True])
def test_a_connection_sees_what_comes_later(
    kept: str,
    root: Path,
    ended: Callable[..., ProcessFolder],
    monkeypatch: pytest.MonkeyPatch,
    is_store: bool,
) -> None:
    """Another job is in another folder; the jobs of a store are not listed for each statement.

    It is the same history, too, where the process goes to another folder meanwhile.
    """
    monkeypatch.setattr(store, "open_store", lambda url: Store(url, LocalFileSystem, kept))
    now_s = [0.0]
    monkeypatch.setattr(dbapi, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.chdir(root.parent)
    with dbapi.connect(history="s3://kept" if is_store else root.name) as connection:
        monkeypatch.chdir("/")
        folder = ended(79, job="later", rank=0)
        trace_writer(capacity=64, rows=20).save(folder.ring("torch_trace"))
        export_process(folder, root)
        sql = "SELECT count(*) FROM torch_trace"
        assert connection.execute(sql).fetchone() == (40 if is_store else 60,)
        now_s[0] = 11.0
        assert connection.execute(sql).fetchone() == (60,)


def test_a_cursor_has_rows_of_its_last_statement_alone(kept: str) -> None:
    """None of one that failed, and none once its connection is closed; of no rows no row."""
    connection = dbapi.connect(history=kept)
    cursor = connection.execute("SELECT seq FROM torch_trace")
    assert (cursor.fetchmany(0), len(cursor.fetchmany()), len(cursor.fetchmany(2))) == ([], 1, 2)
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("FROM torch_traces")
    assert (cursor.description, cursor.rowcount) == (None, -1)
    with pytest.raises(dbapi.InterfaceError, match="or it has failed"):
        cursor.fetchall()
    cursor.execute("SELECT seq FROM torch_trace")
    connection.close()
    for use in (cursor.fetchone, cursor.fetchmany, lambda: cursor.execute("SELECT 1")):
        with pytest.raises(dbapi.InterfaceError, match="the connection is closed"):
            use()


def test_one_place_is_meant(tmp_path: Path) -> None:
    """A process or a history, which has to be there."""
    for words in ({}, {"endpoint": 1, "history": str(tmp_path)}):
        with pytest.raises(dbapi.InterfaceError, match="one of them"):
            dbapi.connect(**words)  # type: ignore[arg-type]
    with pytest.raises(dbapi.OperationalError, match="no process was exported"):
        dbapi.connect(history=str(tmp_path))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SqlError("no such column"), dbapi.ProgrammingError),
        (SqlTooLarge("too large"), dbapi.ProgrammingError),
        (SqlRefused("it writes"), dbapi.NotSupportedError),
        (QueryTimedOut(1.0), dbapi.OperationalError),
    ],
)
def test_an_error_is_of_the_same_kind_from_afar(error: ProbingError, kind: type) -> None:
    """Whether the engine here has said it or an agent."""
    for one in (error, wire.decode_error(wire.encode_error(error))):
        assert type(dbapi._translated(one)) is kind
