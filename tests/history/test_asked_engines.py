"""Other engines that answer: what they are sent, and that their answers are DuckDB's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probing.cli.questions.library import QUESTIONS
from probing.errors import DamagedHistory, MissingLibrary, SqlError, SqlRefused, UsageError
from probing.history.export import export_process
from probing.history.query import History
from probing.history.scanning.chosen import Chosen
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.ring_writer import trace_writer
from tests.harness.targets import ROOT, clean_env, program_path
from tests.history.programs.answering import rows_of

sqlglot = pytest.importorskip("sqlglot", reason="of tests/history.txt")

from probing.history.engines.asking import ask as ask_engine  # noqa: E402
from probing.history.engines.statement import Rows, said_for, tables_in  # noqa: E402
from probing.history.tables import KEPT_TABLES  # noqa: E402

TABLES = {table.name: table for table in KEPT_TABLES}
NOT_TAKEN: dict[str, set[str]] = {
    "spark": {
        "slowest-modules", "not-finite", "throughput", "loss-spikes", "interventions",
        "open-collectives", "stalls",
    },
    "daft": {
        "slowest-modules", "since-when", "loss", "not-finite", "learning-rate", "throughput",
        "memory", "classes", "optimizers", "gradients", "metrics", "spans",
        "interventions", "collective-kinds", "open-collectives", "devices", "processor", "stalls",
    },
}  # fmt: skip
NOT_TAKEN["ray"] = NOT_TAKEN["daft"] | {"dead-gradients", "device-modules", "functions"}
"""The saved questions that an engine does not take."""
LIBRARIES = {"spark": "pyspark", "daft": "daft", "ray": "ray"}
PAGE = ROOT / "docs" / "how-to" / "history-engines.md"


@pytest.fixture(scope="module", autouse=True)
def no_jvm_stays() -> Iterator[None]:
    """End what Spark runs in, which otherwise ends with this process."""
    yield
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is not None and context._gateway is not None:
        process = context._gateway.proc
        context._gateway.shutdown()
        process.stdin.close()
        process.wait(60)
        context._gateway = context._jvm = None


def said(sql: str, engine: str = "spark", only: str = "") -> str:
    """A statement as an engine reads it, whose files have all columns but one."""
    rows = {
        name: Rows(name, ("run", "step", "duration", "extra")) for name in tables_in(sql, TABLES)
    }
    return said_for(engine, sql, TABLES, rows, only)


def test_a_table_is_what_the_files_have_of_it() -> None:
    """The declared columns, NULL where no file has one, then newer ones; of one run."""
    text = said("FROM python.steps s JOIN steps USING (seq)", only=" WHERE run = 'a'")
    assert text.count("FROM `steps` WHERE `run` = 'a')") == 2
    assert "CAST(NULL AS DOUBLE) AS `loss`" in text
    assert "`extra`" in text
    assert "AS `s` JOIN (SELECT" in text
    assert '"run"' in said("FROM steps", "daft")


def test_names_of_the_statement_come_first() -> None:
    """A name that it gives itself is no table of the history; one that is not there is told."""
    assert tables_in("WITH steps AS (SELECT 1 AS a) FROM steps", TABLES) == frozenset()
    assert tables_in("WITH s AS (FROM steps) FROM s, python.memory", TABLES) == {"steps", "memory"}
    for sql in (
        "FROM step",
        "FROM read_csv('/etc/passwd')",
        "FROM '/etc/passwd'",
        "FROM a.b.steps",
    ):
        with pytest.raises(SqlError, match="there is no table"):
            tables_in(sql, TABLES)
    for sql in ("DROP TABLE steps", "SELECT 1; SELECT 2", ""):
        with pytest.raises(SqlRefused):
            tables_in(sql, TABLES)
    with pytest.raises(SqlError):
        tables_in("SELECT FROM WHERE (", TABLES)


def test_what_an_engine_has_no_sql_for_is_told() -> None:
    """It is not left out of what the engine is sent; numbers stay floats."""
    window = "ORDER BY step ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES"
    with pytest.raises(SqlError, match="spark has no SQL for the statement: EXCLUDE"):
        said(f"SELECT sum(duration) OVER ({window}) FROM steps")
    assert "CAST(1e3 AS DOUBLE)" in said("SELECT duration * 1e3 FROM steps", "daft")


def test_the_page_says_what_is_not_taken() -> None:
    """Each question that an engine does not take, and how many it takes."""
    page = PAGE.read_text("utf-8")
    for engine, names in NOT_TAKEN.items():
        (line,) = re.findall(rf"^\| {engine}.*$", page, re.MULTILINE | re.IGNORECASE)
        assert line.endswith(f" | {len(QUESTIONS) - len(names)} | {len(QUESTIONS) - len(names)} |")
        assert names <= set(re.findall(r"`([a-z-]+)`", page))


@pytest.fixture
def history(ended: Callable[..., ProcessFolder], root: Path) -> History:
    """Rows of two runs of projects whose names are odd."""
    for start_time, project in ((77, "007"), (78, "a b%")):
        folder = ended(start_time, started_ns=1_700_000_000_000_000_000 + start_time * 10**9)
        trace_writer(capacity=64, rows=start_time - 37).save(folder.ring("torch_trace"))
        export_process(folder, root, project=project)
    return History(str(root))


@pytest.mark.parametrize(("engine", "library"), LIBRARIES.items())
def test_an_engine_that_is_not_there_is_told(
    history: History, monkeypatch: pytest.MonkeyPatch, engine: str, library: str
) -> None:
    """By the name of what is to be installed; as is a store that no engine is asked of."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingLibrary, match=f"^{library} is not installed"):
        ask_engine(history, engine, "FROM steps")
    history.source.name = "gs://bucket/runs"
    with pytest.raises(UsageError, match="in a folder or in S3, and gs://bucket/runs is neither"):
        ask_engine(history, engine, "FROM steps")


_RUNS = "SELECT run, project FROM processes ORDER BY last_step"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> History:
    """One of two trainings of a history: most questions are of one process."""
    place = tmp_path_factory.mktemp("trained")
    for steps in ("60", "40"):
        words = [
            "--steps",
            steps,
            "--layers",
            "2",
            "--dim",
            "32",
            "--context",
            "16",
            "--batch",
            "4",
        ]
        subprocess.run(
            [sys.executable, str(ROOT / "examples" / "train_gpt.py"), *words],
            env={**clean_env(place / "home"), "PROBING": "1"},
            cwd=place, check=True, capture_output=True, timeout=250,
        )  # fmt: skip
    for folder in RunDirectory(place / "home").folders():
        export_process(folder, place / "history")
    (first, _) = History(str(place / "history")).query(_RUNS, timeout_s=60).to_pylist()
    return History(
        str(place / "history"), chosen=Chosen(first["run"], first["project"], None, None)
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("engine", "workers", "variables"),
    [
        ("daft", 0, {}),
        ("ray", 2, {}),
        ("spark", 0, {}),
        ("spark", 2, {"PYSPARK_SUBMIT_ARGS": "--master local-cluster[2,1,1024] pyspark-shell"}),
    ],
)
def test_answers_are_those_of_duckdb(
    trained: History, engine: str, workers: int, variables: dict[str, str]
) -> None:
    """To all saved questions that an engine takes, with so many workers beside who asks."""
    pytest.importorskip(LIBRARIES[engine], reason="of tests/engines.txt")
    assert trained.chosen is not None
    words = [engine, trained.source.name, trained.chosen.run, trained.chosen.project]
    done = subprocess.run(
        [sys.executable, str(program_path("answering")), *words],
        env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True, timeout=2500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["workers"], told["wrong"]) == (workers, {})
    assert told["not_taken"].keys() == NOT_TAKEN[engine]
    assert all(len(line) < 500 and "\x1b" not in line for line in told["not_taken"].values())


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("engine", ["daft", "spark"])
@pytest.mark.parametrize(
    "root",
    ["team=x", "run=zz/rank=9/step=7/project=a/job=b/day=c/it's [a] history*"],
    indirect=True,
)
def test_folders_above_say_nothing(history: History, engine: str) -> None:
    """They may be called as a column of the files, or as a folder within the history."""
    pytest.importorskip(LIBRARIES[engine], reason="of tests/engines.txt")
    sql = (
        "SELECT run, rank, project, job, day, min(step) AS a, max(step) AS b, count(*) AS n"
        " FROM torch_trace WHERE day > '2000-01-01' GROUP BY 1, 2, 3, 4, 5"
    )
    wanted = history.query(sql, timeout_s=60).to_pylist()
    assert [row["project"] for row in wanted if row["project"] in {"007", "a b%"}]
    assert rows_of(ask_engine(history, engine, sql).to_pylist()) == rows_of(wanted)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("engine", ["daft", "spark"])
def test_files_are_read_as_duckdb_reads_them(history: History, root: Path, engine: str) -> None:
    """Odd names of folders, one run alone, a column that one file lacks; a torn file is told."""
    pytest.importorskip(LIBRARIES[engine], reason="of tests/engines.txt")
    paths = sorted(root.glob("project=*/job=*/table=torch_trace/*/*.parquet"))
    rows = pq.read_table(paths[1], partitioning=None)
    pq.write_table(rows.append_column("colour", pa.array(["red"] * len(rows))), paths[1])
    sql = (
        "SELECT run, project, day, job, colour, count(*) AS n FROM torch_trace"
        " GROUP BY 1, 2, 3, 4, 5 ORDER BY run"
    )
    wanted = history.query(sql, timeout_s=60).to_pylist()
    assert [row["project"] for row in wanted] == ["007", "a b%"]
    assert rows_of(ask_engine(history, engine, sql).to_pylist()) == rows_of(wanted)
    one = History(str(root), chosen=Chosen(wanted[1]["run"], wanted[1]["project"], None, None))
    assert rows_of(ask_engine(one, engine, sql).to_pylist()) == rows_of(wanted[1:])
    paths[0].write_bytes(paths[0].read_bytes()[:-30])
    with pytest.raises(DamagedHistory, match="torch_trace"):
        ask_engine(History(str(root)), engine, sql)
