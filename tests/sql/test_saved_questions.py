"""Every saved question against the tables of real trainings: it runs, and what it says is so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.cli.questions.library import QUESTIONS
from probing.cli.questions.records import put_in
from tests.harness.targets import ROOT, Target, recorded_whole, start_training, stop

pytestmark = pytest.mark.torch

PAGE_SQL = ROOT / "probing" / "page" / "src" / "sql"

FILLED = {
    "slowest-modules", "slowest-calls", "phases", "last-steps", "since-when", "loss",
    "gradient-norms", "learning-rate", "data-waits", "inside", "throughput", "memory", "classes",
    "accumulation", "optimizers", "memory-phases", "batch-sizes", "loader-workers", "processor",
}  # fmt: skip
"""Those to which the bundled training has an answer after some steps."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training that stands still after some steps, so that all answers are of one record."""
    cwd = tmp_path_factory.mktemp("asked")
    with recorded_whole():
        target = start_training("--pause", "0.05", home=cwd / "home", cwd=cwd)
    target.wait_for_step(40)
    stop(target.pid)
    yield target
    target.reap()


def said(target: Target, *words: str) -> subprocess.CompletedProcess[str]:
    """What `query` says."""
    return target.run(str(target.pid), "query", *words)


def rows(target: Target, *words: str) -> list[dict[str, Any]]:
    """The rows of an answer."""
    done = said(target, *words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_each_is_answered(stopped: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that is stopped; those that the training can fill have rows."""
    monkeypatch.setenv("PROBING_HOME", str(stopped.home))
    process = probing.connect(stopped.pid)
    assert len(QUESTIONS) >= 40
    for one in QUESTIONS:
        found = process.query(put_in(one.sql, {}, one.parameters)).to_pylist()
        assert bool(found) or one.name not in FILLED, one.name


def test_the_page_draws_what_is_on_record(stopped: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statements over recorded tables are answered, and calls have the waits for data."""
    monkeypatch.setenv("PROBING_HOME", str(stopped.home))
    process = probing.connect(stopped.pid)
    found = {}
    for name in ("acts", "beside", "calls", "marks", "memory_steps", "model_record", "steps"):
        sql = (PAGE_SQL / f"{name}.sql").read_text().replace("$range", "step < 30")
        found[name] = process.query(sql.replace("$step", "20")).to_pylist()
    assert {row["stage"] for row in found["calls"]} > {"step", "data_wait", "forward", "backward"}
    assert found["steps"][0]["avg_lr"] > 0
    assert found["memory_steps"]
    assert found["model_record"]


def test_the_phases_are_the_whole_step(stopped: Target) -> None:
    """They add up to a hundred percent of the steps."""
    found = rows(stopped, "@phases", "-p", "steps=20")
    assert sum(row["percent"] for row in found) == pytest.approx(100, abs=0.1)
    assert {"forward", "backward", "optimizer"} <= {row["phase"] for row in found}


def test_modules_take_no_more_than_the_forward_pass(stopped: Target) -> None:
    """Own times add up to the calls of the root, so that no part is counted twice."""
    own = sum(row["own_ms"] for row in rows(stopped, "@slowest-modules", "-p", "steps=10"))
    sql = (
        "WITH last AS (FROM steps WHERE duration IS NOT NULL ORDER BY seq DESC LIMIT 10)"
        " SELECT avg(forward_s) * 1e3 AS pass_ms, (SELECT sum(duration) * 1e3 / 10 FROM torch_trace"
        " SEMI JOIN last USING (step) WHERE stage = 'forward' AND depth = 0) AS calls_ms FROM last"
    )
    (whole,) = rows(stopped, sql)
    assert own == pytest.approx(whole["calls_ms"], rel=1e-3)
    assert own <= whole["pass_ms"] * 1.001


def test_parameters_are_in_force(stopped: Target) -> None:
    """As many rows as are asked for, and steps above the factor that is given."""
    assert len(rows(stopped, "@last-steps", "-p", "count=3")) == 3
    assert all(
        row["times_the_median"] >= 0.9 for row in rows(stopped, "@slow-steps", "-p", "factor=1")
    )
    steps = rows(stopped, "SELECT step FROM steps WHERE step = $step", "-p", "step=7")
    assert steps == [{"step": 7}]


def test_a_file_of_sql_is_a_question(stopped: Target, tmp_path: Path) -> None:
    """By its name alone, with parameters."""
    path = tmp_path / "mine.sql"
    path.write_text("SELECT count(*) > $least AS ok FROM steps\n")
    assert rows(stopped, str(path), "-p", "least=10") == [{"ok": True}]


def test_tables_need_no_schema(stopped: Target) -> None:
    """SHOW TABLES and DESCRIBE answer, and FROM takes the bare name of each."""
    names = {row["name"] for row in rows(stopped, "SHOW TABLES")}
    assert {"steps", "torch_trace", "overhead"} <= names
    columns = {row["column_name"] for row in rows(stopped, "DESCRIBE steps")}
    assert {"step", "loss", "duration"} <= columns
    assert rows(stopped, "SELECT count(*) >= 40 AS ok FROM steps") == [{"ok": True}]
    assert rows(stopped, "SELECT count(*) >= 0 AS ok FROM overhead") == [{"ok": True}]


def test_a_pipe_gets_a_table(stopped: Target) -> None:
    """As a terminal does, so that `| less` and a file show what was seen before."""
    done = said(stopped, "@last-steps", "-p", "count=2")
    assert done.stdout.split()[:3] == ["step", "rank", "ms"]
    assert len(done.stdout.splitlines()) == 4


def test_a_plan_is_drawn(stopped: Target) -> None:
    """EXPLAIN shows its plan line by line, and no line break is written out."""
    shown = said(stopped, "EXPLAIN SELECT count(*) FROM steps").stdout
    assert "\\n" not in shown
    assert len(shown.splitlines()) > 5
