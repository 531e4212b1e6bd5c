"""Small files become few: each row stays, once, whoever is killed and whoever reads meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from probing.errors import HistoryBusy, HistoryUnwritable, NoHistory, UsageError
from probing.history.compaction import keep as keeping
from probing.history.compaction.folder import compact_folder
from probing.history.compaction.keep import Keep
from probing.history.compaction.outcome import Compacted, Limits
from probing.history.export import export_process
from probing.history.files import locked
from probing.history.layout import compactor_file, state_file
from probing.history.query import History
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import CLOCK_OFFSET_NS, RingWriter, trace_values, trace_writer
from tests.harness.targets import DEADLINE_S, clean_env, program_path

pytestmark = pytest.mark.anypython

Made = Callable[..., ProcessFolder]
Ask = Callable[[str], list[dict[str, Any]]]
DAY_S = 86_400
COUNTS = "SELECT count(*) AS n, count(DISTINCT seq) AS each_once FROM torch_trace"


@pytest.mark.parametrize(
    "words",
    [
        ("5",),
        pytest.param(("200",), marks=pytest.mark.nightly),
        pytest.param(("100", "1"), marks=pytest.mark.nightly, id="rolled up"),
    ],
)
def test_no_kill_loses_or_doubles_a_row(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A query after each kill finds the rows that were exported by then, each once."""
    history = tmp_path / "history"
    argv = [sys.executable, str(program_path("killed_compactions")), str(tmp_path / "home")]
    done = subprocess.run(
        [*argv, str(history), *words],
        env=clean_env(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["died"] > 0, told
    assert told["seen"] == told["wanted"], told
    assert told["notes"] == []
    assert len(files(history, "torch_trace")) == 3  # one for each day
    assert not list(history.glob("_probing/unfinished/compaction/*"))
    assert not (history / "_probing" / "compaction" / "swap.json").exists()


def files(root: Path, table: str) -> list[Path]:
    """The files of a table."""
    return sorted(root.glob(f"project=*/job=*/table={table}/day=*/*.parquet"))


@pytest.fixture
def exported(ended: Made, root: Path) -> Callable[[int], ProcessFolder]:
    """Exports so many rows of one process, a few at a time."""
    folder, writer = ended(), trace_writer(capacity=4096)

    def export(rows: int) -> ProcessFolder:
        for number in range(writer.written + 1, writer.written + 1 + rows):
            writer.write(**trace_values(number))
            if number % 10 == 0:
                writer.save(folder.ring("torch_trace"))
                export_process(folder, root)
        return folder

    return export


def test_an_export_goes_on_where_it_ended(
    exported: Callable[[int], ProcessFolder], root: Path, ask: Ask
) -> None:
    """Also where its state is lost or damaged: the file that was made of many says what it has."""
    exported(50)
    done = compact_folder(root)
    assert (done.merged_files, done.new_files, done.rows) == (5, 1, 50)
    folder = exported(20)
    assert ask(COUNTS) == [{"n": 70, "each_once": 70}]
    (state,) = (root / "_probing" / "state").glob("*.json")
    for lose in (state.unlink, lambda: state.write_text("{")):
        compact_folder(root)
        lose()
        exported(10)
        compact_folder(root)
    export_process(folder, root)
    assert ask(COUNTS) == [{"n": 90, "each_once": 90}]
    assert ask("SELECT exported, overwritten FROM exports") == [{"exported": 90, "overwritten": 0}]
    assert len(files(root, "torch_trace")) == 1


def test_what_ended_processes_are_is_one_file(ended: Made, root: Path, ask: Ask) -> None:
    """Exported again, none of them is there twice, and rows that come after all are not lost."""
    folders = [ended(77 + rank, job="llm", rank=rank, world_size=3) for rank in range(3)]
    for folder in folders:
        trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
        export_process(folder, root, project="gpt")
    compact_folder(root)
    assert {len(files(root, table)) for table in ("processes", "exports", "torch_trace")} == {1}
    assert [export_process(folder, root).notes for folder in folders] == [()] * 3
    trace_writer(capacity=64, rows=12).save(folders[0].ring("torch_trace"))
    (note,) = export_process(folders[0], root).notes
    assert "was put together with others" in note
    next((root / "_probing" / "state").glob("*-78-*.json")).unlink()
    assert export_process(folders[1], root).project == "gpt"
    assert ask("SELECT count(*) AS n FROM processes") == [{"n": 3}]
    assert ask("SELECT count(*) AS n FROM exports") == [{"n": 3}]
    assert ask("SELECT count(*) AS n FROM torch_trace") == [{"n": 30}]


def test_a_query_that_goes_on_reads_what_it_began_with(
    exported: Callable[[int], ProcessFolder], root: Path
) -> None:
    """Nothing is replaced before its last row, and a compaction that cannot wait says so."""
    exported(100)
    asked = History(str(root)).query("SELECT seq FROM torch_trace", timeout_s=DEADLINE_S)
    done = compact_folder(root, limits=Limits(wait_s=0))
    assert (done.is_complete, done.new_files) == (False, 0)
    assert "is being read by another process" in done.notes[0]
    waiting: list[Compacted] = []
    patient = Limits(wait_s=DEADLINE_S)
    other = threading.Thread(target=lambda: waiting.append(compact_folder(root, limits=patient)))
    other.start()
    assert len(asked.to_pylist()) == 100
    asked.close()
    other.join(DEADLINE_S)
    assert waiting[0].merged_files == 10
    assert len(files(root, "torch_trace")) == 1


def test_a_swap_that_was_killed_half_way_is_seen_as_done(
    exported: Callable[[int], ProcessFolder], root: Path, ask: Ask, tmp_path: Path
) -> None:
    """And as not begun where the new file is not there yet; the next compaction goes on."""
    exported(30)
    old = files(root, "torch_trace")
    kept = {path: path.read_bytes() for path in old}
    compact_folder(root)
    (new,) = files(root, "torch_trace")
    told = {"new": str(new.relative_to(root)), "old": [str(p.relative_to(root)) for p in old]}
    (root / "_probing" / "compaction" / "swap.json").write_text(json.dumps(told))
    for path in old[1:]:
        path.write_bytes(kept[path])
    assert ask(COUNTS) == [{"n": 30, "each_once": 30}]
    for path in old:
        path.write_bytes(kept[path])
    new.rename(tmp_path / "not there yet")
    assert ask(COUNTS) == [{"n": 30, "each_once": 30}]
    (tmp_path / "not there yet").rename(new)
    compact_folder(root)
    assert ask(COUNTS) == [{"n": 30, "each_once": 30}]
    assert files(root, "torch_trace") == [new]


def test_two_compactions_do_not_meet(exported: Callable[[int], ProcessFolder], root: Path) -> None:
    """The second is refused."""
    exported(20)
    with (
        locked(root, compactor_file(root)),
        pytest.raises(HistoryBusy, match=r"is being compacted by another process"),
    ):
        compact_folder(root)
    with pytest.raises(NoHistory):
        compact_folder(root / "project=none")


def test_rows_that_no_state_counts_are_left_alone(
    exported: Callable[[int], ProcessFolder], root: Path, ask: Ask
) -> None:
    """They are of an export that was killed, or is going on: the next one counts them."""
    folder = exported(30)
    (state,) = (root / "_probing" / "state").glob("*.json")
    before = state.read_text()
    exported(10)
    state.write_text(before)
    compact_folder(root)
    assert len(files(root, "torch_trace")) == 2
    assert export_process(folder, root).notes == ()
    assert ask(COUNTS) == [{"n": 40, "each_once": 40}]


def test_columns_of_other_versions_are_kept(
    exported: Callable[[int], ProcessFolder], root: Path, ask: Ask
) -> None:
    """What one file lacks is NULL; what is of another type stays in a file of its own."""
    exported(50)
    paths = files(root, "torch_trace")
    for path, column, kind in ((paths[1], "new", "int64"), (paths[2], "depth", "string")):
        table = pq.read_table(path, partitioning=None)
        changed = table["depth"].cast(kind)
        if column in table.column_names:
            table = table.set_column(table.column_names.index(column), column, changed)
        else:
            table = table.append_column(column, changed)
        pq.write_table(table.replace_schema_metadata(pq.read_schema(path).metadata), path)
    done = compact_folder(root)
    assert (done.merged_files, done.rows) == (4, 40)
    assert len(files(root, "torch_trace")) == 2
    assert ask('SELECT count(*) AS n, count("new") AS has FROM torch_trace') == [
        {"n": 50, "has": 10}
    ]


def test_a_damaged_file_stays_and_is_told(
    exported: Callable[[int], ProcessFolder], root: Path
) -> None:
    """Torn or damaged within: the others are put together without it."""
    exported(60)
    torn, bad, *_ = files(root, "torch_trace")
    torn.write_bytes(torn.read_bytes()[:-9])
    data = bytearray(bad.read_bytes())
    data[4:400] = b"\xff" * 396
    bad.write_bytes(data)
    done = compact_folder(root)
    assert done.rows == 40
    assert sorted(str(path) in " ".join(done.notes) for path in (torn, bad)) == [True, True]
    assert len(files(root, "torch_trace")) == 3
    assert {torn, bad} < set(files(root, "torch_trace"))


def test_a_full_disk_costs_nothing(
    exported: Callable[[int], ProcessFolder], root: Path, ask: Ask
) -> None:
    """What was written in vain takes no room, and all rows are where they were."""
    exported(50)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, before[1]))
    try:
        with pytest.raises(HistoryUnwritable, match="File too large"):
            compact_folder(root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(root.glob("_probing/unfinished/*/*"))
    assert ask(COUNTS) == [{"n": 50, "each_once": 50}]
    assert compact_folder(root).rows == 50


def test_a_few_files_are_left_until_there_are_more(
    exported: Callable[[int], ProcessFolder], root: Path
) -> None:
    """What is done after each round does not write the same rows again and again."""
    exported(50)
    assert compact_folder(root, limits=Limits(least=6)).merged_files == 0
    assert not compact_folder(root, limits=Limits(until_s=0)).is_complete
    assert not compact_folder(root, limits=Limits(is_asked=lambda: True)).is_complete
    exported(10)
    assert compact_folder(root, limits=Limits(least=6)).merged_files == 6


def at_day(writer: RingWriter, folder: ProcessFolder, now: dt.datetime, days_ago: int) -> None:
    """Ten rows of a day."""
    now_ns = int(now.timestamp() * 1e9)
    for _ in range(10):
        number = writer.written + 1
        at_ns = now_ns - days_ago * DAY_S * 10**9 - CLOCK_OFFSET_NS
        writer.write(**{**trace_values(number), "start_ns": at_ns})
    writer.save(folder.ring("torch_trace"))


def test_what_is_too_old_or_too_much_goes(
    ended: Made, root: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By days, the oldest first; what is gone does not come again, and what is of today stays."""
    now = dt.datetime.now(dt.timezone.utc)
    monkeypatch.setattr(keeping, "today", now.date)  # it may be midnight meanwhile
    folder, writer = ended(), trace_writer(capacity=64)
    for days_ago in (5, 3, 1, 0):
        at_day(writer, folder, now, days_ago)
        export_process(folder, root)
    done = compact_folder(root, Keep(days=3))
    assert done.removed_files == 1
    assert ask(COUNTS)[0]["n"] == 30
    done = compact_folder(root, Keep(bytes=1))
    assert "of today is kept" in done.notes[0]
    assert ask(COUNTS)[0]["n"] == 10
    assert export_process(folder, root).notes == ()
    assert (ask(COUNTS)[0]["n"], ask("SELECT count(*) AS n FROM processes")[0]["n"]) == (10, 1)
    assert len(list(root.glob("project=*/job=*/table=torch_trace/*"))) == 1


def test_a_run_goes_once_it_has_ended_before_the_days_that_are_kept(
    ended: Made, root: Path, ask: Ask
) -> None:
    """Beside its rows who it was, and its state a month later; a run that goes on stays."""
    long_ago = int((dt.datetime.now(dt.timezone.utc).timestamp() - 50 * DAY_S) * 1e9)
    names = [export_process(ended(77 + n, started_ns=long_ago), root).process for n in range(3)]
    ages = dict(zip(names, (45, 20, 1), strict=True))
    for name, days in ages.items():
        at_s = dt.datetime.now(dt.timezone.utc).timestamp() - days * DAY_S
        for path in [*root.glob(f"project=*/*/*/*/{name}.parquet"), state_file(root, name)]:
            os.utime(path, (at_s, at_s))
    compact_folder(root, Keep(days=10))
    assert [row["process"] for row in ask("SELECT process FROM processes")] == [names[2]]
    assert [state_file(root, name).exists() for name in names] == [False, True, True]
    with pytest.raises(UsageError):
        Keep(days=0)
