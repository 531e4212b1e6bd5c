"""SQL over a history: the tables that are there, what is refused, what is damaged."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probing.cli.questions.library import QUESTIONS
from probing.cli.questions.records import put_in
from probing.cli.render.history.kept_run import render_kept_run
from probing.cli.render.history.runs import render_runs
from probing.cli.reports.run.kept import screen_of
from probing.diagnosis.runs.kept import find_kept
from probing.errors import DamagedHistory, NoHistory, NoSuchRun, SqlError, SqlRefused
from probing.history.export import export_process
from probing.history.layout import quoted, unquoted
from probing.history.naming import began_on
from probing.history.query import History
from probing.history.runs import runs_of
from probing.history.scanning.chosen import EVERY_RANK, Chosen, Days
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import trace_writer

pytestmark = pytest.mark.anypython

Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def two_runs(ended: Callable[..., ProcessFolder], root: Path) -> list[str]:
    """Two runs in a history."""
    runs = []
    for start_time in (77, 78):
        folder = ended(start_time, started_ns=1_700_000_000_000_000_000 + start_time * 10**9)
        trace_writer(capacity=64, rows=start_time - 37).save(folder.ring("torch_trace"))
        runs.append(export_process(folder, root).run)
    return runs


def test_rows_of_all_runs_are_one_table(two_runs: list[str], ask: Ask) -> None:
    """A run is a column; a table that no run has is empty, with the columns that it has live."""
    rows = ask("SELECT run, count(*) AS n FROM python.torch_trace GROUP BY run ORDER BY run")
    assert rows == [{"run": two_runs[0], "n": 40}, {"run": two_runs[1], "n": 41}]
    assert ask("SELECT run, step, loss FROM steps") == []
    assert ask("SELECT count(*) AS n FROM query_table('torch_' || 'trace')") == [{"n": 81}]
    names = [row["column_name"] for row in ask("DESCRIBE steps")]
    assert names[:7] == ["run", "project", "day", "rank", "host", "pid", "job"]
    assert {"step", "loss", "duration", "seq"} <= set(names)
    assert {"steps", "processes", "environment"} <= {row["name"] for row in ask("SHOW TABLES")}


def test_runs_are_listed_newest_first(two_runs: list[str], root: Path) -> None:
    """With who they were and how they ended."""
    found = list(runs_of(History(str(root)), timeout_s=60))
    assert [run.run for run in found] == two_runs[::-1]
    assert {(run.processes, run.running, run.hosts) for run in found} == {(1, 0, ("node1",))}
    assert [run.run for run in runs_of(History(str(root)), timeout_s=60, most=1)] == two_runs[1:]


def test_two_projects_may_have_a_run_of_one_name(
    ended: Callable[..., ProcessFolder], root: Path
) -> None:
    """Two scripts of one job that begin in the same second: each is a run, asked by its project."""
    for start_time, project in ((77, "actor"), (78, "critic")):
        folder = ended(start_time, job="123", rank=0, started_ns=10**18)
        trace_writer(capacity=64, rows=start_time - 37).save(folder.ring("torch_trace"))
        name = export_process(folder, root, project=project).run
    listed = list(runs_of(History(str(root)), timeout_s=60))
    assert [(run.run, run.project) for run in listed] == [(name, "actor"), (name, "critic")]
    lines = render_runs(listed, width=None, color=False).splitlines()
    asked = [line.split()[0] for line in lines[-2:]]
    assert asked == [f"actor/{name}", f"critic/{name}"]
    (kept,) = find_kept(str(root), (asked[1],), timeout_s=60, notes=[])
    assert kept.query("SELECT count(*) AS n FROM torch_trace") == [{"n": 41}]
    text = render_kept_run(screen_of(kept, rank=None), "runs", kept.asked, width=80, color=False)
    assert f"probing history diff runs {asked[1]} OTHER_RUN" in text
    assert f"FROM steps WHERE run = '{name}' AND project = 'critic'" in text
    with pytest.raises(NoSuchRun, match=f"of 2 runs: actor/{name}, critic/{name}"):
        find_kept(str(root), (name,), timeout_s=60, notes=[])


def test_the_worst_end_of_a_rank_is_how_a_run_ended(
    ended: Callable[..., ProcessFolder], root: Path
) -> None:
    """A killed rank's before an orderly one; before both one that tells why others were killed."""
    told = []
    for rank in range(3):
        folder = ended(77 + rank, job="llm", rank=rank)
        if rank == 1:
            folder.socket.touch()  # which an agent removes that is told of the end
        if rank == 2:
            folder.fatal_signal.write_bytes(b"Fatal Python error: Aborted\n")
        export_process(folder, root)
        (run,) = runs_of(History(str(root)), timeout_s=60)
        told.append(" ".join(str(run.ending).split()[:5]).rstrip(":"))
    assert told == [
        "It ended in an orderly",
        "It ended without a word",
        "It was ended by SIGABRT",
    ]


def test_saved_questions_work(two_runs: list[str], ask: Ask) -> None:
    """All of them ask recorded tables, and run over a history."""
    assert two_runs
    found = {one.name: ask(put_in(one.sql, {}, one.parameters)) for one in QUESTIONS}
    assert {row["module"] for row in found["slowest-modules"]} <= {"encoder", "decoder", "head"}
    assert len(found) > 10


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_csv('/etc/passwd')",
        "FROM read_parquet('/etc/*.parquet')",
        "FROM '/etc/passwd'",
        "FROM glob('/etc/*')",
        "COPY steps TO '/tmp/rows.csv'",
        "CREATE TABLE mine AS FROM steps",
        "ATTACH '/tmp/mine.db'",
        "SET threads = 64",
    ],
)
def test_nothing_else_can_be_read_or_written(two_runs: list[str], ask: Ask, sql: str) -> None:
    """No file of the machine outside of the history."""
    assert two_runs
    with pytest.raises(SqlRefused):
        ask(sql)


def test_a_wrong_name_is_told(two_runs: list[str], ask: Ask) -> None:
    """As over a live process."""
    assert two_runs
    with pytest.raises(SqlError, match=r"no table torch_traces\. Did you mean python\.torch_trace"):
        ask("FROM torch_traces")
    with pytest.raises(SqlError, match="no column modul"):
        ask("SELECT modul FROM torch_trace")


def test_a_torn_file_is_left_out_and_told(two_runs: list[str], root: Path) -> None:
    """The rows of the other run are there."""
    torn = next(root.glob("project=*/job=*/table=torch_trace/*/*-77-*.parquet"))
    torn.write_bytes(torn.read_bytes()[:-30])
    history = History(str(root))
    sql = "SELECT DISTINCT run FROM torch_trace"
    assert history.query(sql, timeout_s=60).to_pylist() == [{"run": two_runs[1]}]
    (note,) = history.notes
    assert note.startswith(f"the file {torn} is damaged, and left out: ")
    assert list(runs_of(History(str(root)), timeout_s=60))


def test_of_one_run_the_files_of_its_days_are_opened(
    ended: Callable[..., ProcessFolder], root: Path
) -> None:
    """And no others: a torn file of another day is not even seen."""
    first_ns = 1_700_000_000_000_000_000
    for start_time, days in ((77, 0), (78, 5)):
        folder = ended(start_time, started_ns=first_ns + days * 86_400 * 10**9)
        trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
        export_process(folder, root)
    later = next(root.glob("project=*/job=*/table=torch_trace/*/*-78-*.parquet"))
    day = later.parent.with_name("day=2023-11-19")
    day.mkdir()
    later.rename(day / later.name)
    torn = next(root.glob("project=*/job=*/table=torch_trace/*/*-77-*.parquet"))
    torn.write_bytes(torn.read_bytes()[:-30])
    notes: list[str] = []
    wanted = {"20231114": [{"n": 0}], "20231119": [{"n": 9}]}
    for word, rows in reversed(wanted.items()):
        assert not notes
        (kept,) = find_kept(str(root), (word,), timeout_s=60, notes=notes)
        assert kept.query("SELECT count(*) AS n FROM torch_trace") == rows
    assert len(notes) == 1


def test_what_is_not_known_of_a_run_leaves_no_file_out() -> None:
    """Its name says when it began, also where an agent came into its process again later."""
    assert began_on("node7-4553-20261124T174542") == date(2026, 11, 24)
    assert began_on("llm-20261124T174542-restart-2-3") == date(2026, 11, 24)
    assert began_on("llm-20269924T174542") is began_on("llm") is None
    unknown = Chosen("llm", "gpt", None, EVERY_RANK)
    assert unknown.may_be_in("/runs/table=steps/day=2026-11-24/a.parquet")
    assert not unknown._replace(days=Days(last="2026-11-23")).may_be_in(
        "/runs/day=2026-11-24/a.parquet"
    )


def test_a_file_that_breaks_off_within_is_an_error(two_runs: list[str], root: Path) -> None:
    """Never a short answer: what is found as rows are read ends the statement."""
    assert two_runs
    bad = next(root.glob("project=*/job=*/table=torch_trace/*/*-77-*.parquet"))
    data = bytearray(bad.read_bytes())
    data[4 : len(data) * 3 // 4] = b"\xff" * (len(data) * 3 // 4 - 4)
    bad.write_bytes(data)
    with pytest.raises(DamagedHistory, match=re.escape(str(bad))):
        History(str(root)).query("SELECT sum(seq) FROM torch_trace", timeout_s=60).to_pylist()


def test_a_folder_without_runs_is_no_history(tmp_path: Path) -> None:
    """Nor is one that is not there."""
    with pytest.raises(NoHistory, match="no such folder"):
        History(str(tmp_path / "nowhere"))
    with pytest.raises(NoHistory, match="no process was exported"):
        History(str(tmp_path))


@pytest.mark.parametrize("root", [Path("run=5/step=7/lr=0.001/job=other/h")], indirect=True)
def test_folders_above_a_history_say_nothing(two_runs: list[str], ask: Ask) -> None:
    """Those of a sweep are named as those of a history."""
    sql = "SELECT DISTINCT run, job, min(seq) AS first FROM torch_trace GROUP BY ALL ORDER BY run"
    assert ask(sql) == [{"run": run, "job": None, "first": 1} for run in two_runs]
    assert "lr" not in ask("FROM torch_trace LIMIT 1")[0]


def test_a_long_name_is_cut_between_characters(
    two_runs: list[str], root: Path, ended: Callable[..., ProcessFolder], ask: Ask
) -> None:
    """What earlier versions have cut within one is read, too, and costs no other run."""
    for begin in range(9):
        name = quoted("x" * begin + "\u8bad\u7ec3" * 20)
        assert len(name) < 220
        assert quoted(unquoted(name)) == name
        assert quoted(unquoted(name[:-17])) == name[:-17]
    folder = ended(79, job="\u8bad" * 40, rank=0)
    trace_writer(capacity=64, rows=42).save(folder.ring("torch_trace"))
    export_process(folder, root)
    (of_job,) = root.glob("project=*/job=%E8*")
    of_job.rename(of_job.with_name("job=xxx%E8%AE-0123456789abcdef"))
    rows = ask("SELECT job, count(*) AS n FROM torch_trace GROUP BY job ORDER BY job NULLS FIRST")
    assert rows == [{"job": None, "n": 81}, {"job": "xxx\ufffd-0123456789abcdef", "n": 42}]
    assert len(list(runs_of(History(str(root)), timeout_s=60))) == len(two_runs) + 1


def test_a_table_of_a_newer_version_is_there(two_runs: list[str], root: Path, ask: Ask) -> None:
    """Its columns are those of its files."""
    assert two_runs
    files = list(root.glob("project=*/job=*/table=torch_trace/*/*.parquet"))
    for file in files:
        place = Path(str(file.parent).replace("table=torch_trace", "table=from_tomorrow"))
        place.mkdir(parents=True, exist_ok=True)
        (place / file.name).write_bytes(file.read_bytes())
    assert ask("SELECT count(*) AS n, max(seq) AS last FROM from_tomorrow") == [
        {"n": 81, "last": 41}
    ]


def test_a_column_of_a_newer_version_is_there(two_runs: list[str], root: Path, ask: Ask) -> None:
    """NULL in the files that do not have it."""
    assert two_runs
    newer = next(root.glob("project=*/job=*/table=torch_trace/*/*-77-*.parquet"))
    rows = pq.read_table(newer, partitioning=None)
    pq.write_table(rows.append_column("colour", pa.array(["red"] * len(rows))), newer)
    sql = "SELECT colour, count(*) AS n FROM torch_trace GROUP BY ALL ORDER BY ALL"
    assert ask(sql) == [{"colour": "red", "n": 40}, {"colour": None, "n": 41}]
