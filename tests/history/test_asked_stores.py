"""Other engines over a history in S3: the same answers as DuckDB's, over the same objects."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probing.errors import DamagedHistory, HistoryBusy, SqlError, StoreUnreachable, UsageError
from probing.history.query import History
from probing.history.scanning.chosen import Chosen
from probing.history.stores.bucket import bucket_of
from probing.history.stores.objects import open_store
from probing.rundir.folders import ProcessFolder
from tests.harness.late import late
from tests.harness.ring_writer import trace_writer
from tests.harness.s3_server import Line
from tests.harness.targets import ROOT
from tests.history.programs.answering import rows_of

late("moto", reason="of tests/history.txt")
pytest.importorskip("sqlglot", reason="of tests/history.txt")

from probing.history.engines.asking import ask  # noqa: E402

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1000)]
COUNTED = "SELECT count(*) AS n, count(DISTINCT rank * 100 + seq) AS d FROM torch_trace"
STATEMENTS = (
    "SELECT count(*) AS n FROM torch_trace",
    "SELECT run, project, job, day, rank, count(*) AS n FROM torch_trace GROUP BY 1, 2, 3, 4, 5",
    "SELECT count(*) AS n FROM torch_trace WHERE job IS NULL",
    "SELECT project, sum(step) AS s FROM torch_trace WHERE project = 'a b%' GROUP BY project",
    "SELECT run, seq FROM torch_trace WHERE day >= '2020-01-01' ORDER BY run, seq LIMIT 7",
    "SELECT count(*) AS n FROM torch_trace WHERE day < '2020-01-01'",
    "SELECT colour, count(*) AS n FROM torch_trace GROUP BY colour",
    "SELECT run, median(duration) AS m, max(step) AS b FROM torch_trace GROUP BY run",
    "SELECT t.run, p.host, count(*) AS n FROM torch_trace t JOIN processes p USING (run)"
    " GROUP BY 1, 2",
    "SELECT run, started_ns, last_step, command FROM processes",
    "SELECT run, sum(exported) AS n, sum(waiting) AS w FROM exports GROUP BY run",
    "SELECT step, loss FROM steps",
    "WITH most AS (SELECT run, max(seq) AS seq FROM torch_trace GROUP BY run)"
    " SELECT run, t.duration * 1e3 AS ms FROM torch_trace t JOIN most USING (run, seq)",
)  # fmt: skip


@pytest.fixture
def history(url: str, ended: Callable[..., ProcessFolder]) -> History:
    """Rows of four processes; one file has a column that others lack."""
    place = bucket_of(url, os.environ)
    odd = (("007", None), ("a b%", "j/x"), ("a b%", "j/x"), ("plain", "llm"))
    for number, (project, job) in enumerate(odd):
        at = 1_700_000_000_000_000_000 + number * 10**14
        folder = ended(77 + number, started_ns=at, job=job, rank=number)
        trace_writer(capacity=64, rows=10 + number).save(folder.ring("torch_trace"))
        place.export(folder, project=project)
    place.drain()
    return History(url)


def same(history: History, sql: str, engine: str = "daft") -> Sequence[tuple[str, ...]]:
    """The rows that DuckDB and an engine give alike."""
    found = rows_of(ask(history, engine, sql).to_pylist())
    assert found == rows_of(history.query(sql, timeout_s=60).to_pylist()), sql
    return found


def add_column(history: History) -> None:
    """Have one object with a column that others lack."""
    store = open_store(history.source.name)
    name = history.files("torch_trace")[1]
    rows = pq.read_table(pa.BufferReader(store.get(name) or b""))
    newer = pa.BufferOutputStream()
    pq.write_table(rows.append_column("colour", pa.array(["red"] * len(rows))), newer)
    store.put(name, newer.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "url", ["", "all runs/it is [a]* 100%25", "team=x/run=5/step=7/project=y"], indirect=True
)
def test_answers_are_those_of_duckdb(history: History) -> None:
    """Whatever the folders above it are called; of all, and of one run."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    add_column(history)
    for sql in STATEMENTS:
        same(history, sql)
    (run, project) = same(history, "SELECT run, project FROM processes WHERE job = 'llm'")[0]
    one = History(history.source.name, chosen=Chosen(run, project, "llm", 3))
    assert same(one, "SELECT project, job, count(*) AS n FROM torch_trace GROUP BY 1, 2") == [
        ("plain", "llm", "13.0")
    ]


def test_a_command_has_daft_answer(history: History) -> None:
    """With the rows alone on its screen."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    words = ["history", "query", history.source.name, "--engine", "daft", "--json", COUNTED]
    done = subprocess.run(
        [sys.executable, "-m", "probing", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [{"n": 46, "d": 46}]


def test_a_day_alone_is_read(history: History, line: Line) -> None:
    """What the statement leaves out by what folders say is not fetched."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    line.requests.clear()
    ask(history, "daft", "SELECT count(*) AS n FROM torch_trace WHERE project = 'plain'")
    fetched = {one for one in line.requests if "x-id=GetObject" in one and "torch_trace" in one}
    assert fetched
    assert all("plain" in one for one in fetched)


def test_no_row_is_doubled_by_a_compaction_that_is_half_done(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object and those that it stands for are all there: only it is read."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    store, place = open_store(history.source.name), bucket_of(history.source.name, os.environ)
    before, remove = len(history.files("torch_trace")), store.remove
    with monkeypatch.context() as patched:

        def break_off(names: Sequence[str]) -> None:
            if any("table=torch_trace" in name for name in names):
                raise StoreUnreachable(store.url, "killed")
            remove(names)

        patched.setattr(store, "remove", break_off)
        with contextlib.suppress(StoreUnreachable):
            place.compact()
    there = [one.name for one in store.objects() if "table=torch_trace" in one.name]
    assert len(there) == before + 1
    assert same(history, COUNTED) == [("46.0", "46.0")]
    assert place.compact().is_complete
    assert same(history, COUNTED) == [("46.0", "46.0")]


@pytest.mark.parametrize("times", [1, 99])
def test_it_is_asked_again_if_objects_are_replaced(history: History, times: int) -> None:
    """They were listed, and are gone: the answer is that of those in their place, or none."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    store, first, asked = open_store(history.source.name), history.source.files, list[int]()

    def listed(folders: Sequence[str]) -> list[str]:
        found = first(folders)
        if folders and "table=torch_trace" in folders[0] and len(asked) < times:
            asked.append(1)
            gone = found[0]
            store.copy(gone, gone.replace(".parquet", f"{len(asked)}.parquet"))
            store.remove([gone])
        return found

    history.source.files = listed
    if times == 1:
        assert rows_of(ask(history, "daft", COUNTED).to_pylist()) == [("46.0", "46.0")]
    else:
        with pytest.raises(HistoryBusy, match="are put together"):
            ask(history, "daft", COUNTED)
        assert len(asked) == 5


def test_who_asks_is_who_the_history_asks_as(
    history: History, line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the variables, else by a profile; nobody asks without a name."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    line.signers.clear()
    ask(history, "daft", COUNTED)
    assert line.signers == {"anybody"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    before = len(line.requests)
    with pytest.raises(StoreUnreachable, match="Daft finds no credentials"):
        ask(history, "daft", COUNTED)
    assert not [one for one in line.requests[before:] if "parquet" in one]
    lines = "[mine]\naws_access_key_id = {}\naws_secret_access_key = b\n"
    Path(tmp_path, "credentials").write_text(lines.format("profiled"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    open_store.cache_clear()
    line.signers.clear()
    ask(History(history.source.name), "daft", COUNTED)
    assert line.signers == {"profiled"}
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    with pytest.raises(StoreUnreachable, match=r"Daft finds no credentials: .*nobodys"):
        ask(history, "daft", COUNTED)
    open_store.cache_clear()


def test_what_is_wrong_is_told(
    history: History, line: Line, capfd: pytest.CaptureFixture[str]
) -> None:
    """A torn object by its name, a store that is away, and what Daft does not take."""
    pytest.importorskip("daft", reason="of tests/engines.txt")
    store, name = open_store(history.source.name), history.files("torch_trace")[0]
    with pytest.raises(SqlError, match="daft does not take the statement"):
        ask(history, "daft", "SELECT any_value(step) AS a FROM torch_trace")
    data = store.get(name) or b""
    store.put(name, data[:-30])
    with pytest.raises(DamagedHistory, match="table=torch_trace"):
        ask(history, "daft", COUNTED)
    store.put(name, data)
    line.is_down = True
    with pytest.raises(StoreUnreachable):
        ask(history, "daft", COUNTED)
    line.is_down = False
    assert capfd.readouterr().err == ""


def test_spark_says_what_it_lacks(history: History) -> None:
    """A library of Hadoop, which nobody downloads at run time."""
    pytest.importorskip("pyspark", reason="of tests/engines.txt")
    with pytest.raises(UsageError, match=r"hadoop-aws 3\.[0-9.]+ is not on its class path"):
        ask(history, "spark", COUNTED)
