"""A store that lost what was exported to it: emptied, put back, in part; each row comes once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from probing.cli.render.history.kept_run import render_kept_run
from probing.cli.reports.run.kept import screen_of
from probing.diagnosis.runs.kept import find_kept
from probing.errors import HistoryBusy, StoreUnreachable
from probing.history.query import History
from probing.history.stores.bucket import bucket_of
from probing.history.stores.objects import Store
from probing.rundir.folders import ProcessFolder
from probing.tables import TABLES_BY_NAME
from tests.harness.late import late
from tests.harness.ring_writer import CLOCK_OFFSET_NS, RingWriter, trace_values, trace_writer
from tests.harness.s3_server import Line
from tests.history.test_stores import Ask, Made, live, numbers, spool_of

late("moto", reason="of tests/history.txt")

__all__ = ["live"]
BOOKS = "SELECT exported, overwritten, damaged, waiting FROM exports WHERE name = 'torch_trace'"


@pytest.fixture
def ask(url: str) -> Ask:
    """Rows of the history."""
    return lambda sql: History(url).query(sql, timeout_s=60).to_pylist()


def record(folder: ProcessFolder, writer: RingWriter, rows: int) -> None:
    """So many more rows."""
    for _ in range(rows):
        writer.write(**trace_values(writer.written + 1))
    writer.save(folder.ring("torch_trace"))


def objects_of(store: Store) -> dict[str, bytes]:
    """All that is in a store."""
    return {one.name: store.get(one.name) or b"" for one in store.objects()}


def put_back(store: Store, kept: dict[str, bytes]) -> None:
    """Have a store hold this and nothing else."""
    store.remove(one.name for one in store.objects())
    for name, data in kept.items():
        store.put(name, data)


@pytest.mark.parametrize("is_live", [True, False])
def test_an_emptied_store_gets_again_what_is_on_record(
    is_live: bool, ask: Ask, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is told how many rows were lost, and the books say how many the ring had no more."""
    made = request.getfixturevalue("live" if is_live else "ended")
    folder, writer = made if is_live else made(), trace_writer(capacity=64, rows=0)
    record(folder, writer, 50)
    first = spool_of(store, tmp_path / "spool").export(folder, project="gpt")
    put_back(store, {})
    record(folder, writer, 40)
    again = spool_of(store, tmp_path / "spool").export(folder)
    assert numbers(ask) == [*range(27, 91)]
    assert ask(BOOKS) == [{"exported": 64, "overwritten": 26, "damaged": 0, "waiting": 0}]
    assert (again.run, again.project, again.lost) == (first.run, "gpt", 50)
    assert "50 rows that were exported before are not in s3://" in again.notes[-1]
    assert [row["run"] for row in ask("FROM processes")] == [first.run]
    later = spool_of(store, tmp_path / "spool").export(folder)
    assert (later.lost, later.tables[0].new) == (0, 0)


def test_rows_that_wait_meanwhile_are_not_lost(
    live: ProcessFolder, ask: Ask, store: Store, line: Line, tmp_path: Path
) -> None:
    """The store was away, and came back empty: the spool has what the ring has no more."""
    folder, writer = live, trace_writer(capacity=16, rows=0)
    record(folder, writer, 10)
    spool_of(store, tmp_path / "spool").export(folder)
    line.is_down = True
    for rows in (10, 10):
        record(folder, writer, rows)
        spool = spool_of(store, tmp_path / "spool")
        with pytest.raises(StoreUnreachable):
            spool.export(folder)
    line.is_down = False
    put_back(store, {})
    record(folder, writer, 0)
    assert spool_of(store, tmp_path / "spool").export(folder).lost == 10
    assert numbers(ask) == [*range(11, 31)]
    record(folder, writer, 5)
    spool_of(store, tmp_path / "spool").export(folder)
    assert numbers(ask) == [*range(11, 36)]
    assert ask(BOOKS) == [{"exported": 25, "overwritten": 10, "damaged": 0, "waiting": 0}]


def test_a_store_of_before_lacks_what_came_since(
    live: ProcessFolder, ask: Ask, store: Store, tmp_path: Path
) -> None:
    """It was put back from a copy, and back again: no row is there twice."""
    folder, writer = live, trace_writer(capacity=64, rows=0)
    record(folder, writer, 20)
    spool_of(store, tmp_path / "spool").export(folder)
    old = objects_of(store)
    record(folder, writer, 20)
    spool_of(store, tmp_path / "spool").export(folder)
    put_back(store, old)
    assert spool_of(store, tmp_path / "spool").export(folder).lost == 20
    assert numbers(ask) == [*range(1, 41)]
    put_back(store, old)
    record(folder, writer, 20)
    assert spool_of(store, tmp_path / "spool").export(folder).lost == 20
    assert numbers(ask) == [*range(1, 61)]
    assert len(ask("FROM processes")) == 1


def test_a_kill_while_it_is_found_out_changes_nothing(
    live: ProcessFolder, ask: Ask, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found out once more."""
    folder, writer = live, trace_writer(capacity=64, rows=0)
    record(folder, writer, 20)
    spool_of(store, tmp_path / "spool").export(folder)
    put_back(store, {})

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    spool = spool_of(store, tmp_path / "spool")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            spool.export(folder)
    record(folder, writer, 5)
    assert spool_of(store, tmp_path / "spool").export(folder).lost == 20
    assert numbers(ask) == [*range(1, 26)]
    assert ask(BOOKS) == [{"exported": 25, "overwritten": 0, "damaged": 0, "waiting": 0}]


def test_a_bucket_that_is_away_has_lost_nothing(
    live: ProcessFolder, ask: Ask, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there may not be exported twice, once it is there again."""
    folder, writer = live, trace_writer(capacity=64, rows=0)
    record(folder, writer, 20)
    spool_of(store, tmp_path / "spool").export(folder)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_base", f"no-such-bucket/{store._base}")
        record(folder, writer, 5)
        spool = spool_of(store, tmp_path / "spool")
        with pytest.raises(StoreUnreachable, match="NO_SUCH_BUCKET"):
            spool.export(folder)
    assert spool_of(store, tmp_path / "spool").export(folder).lost == 0
    assert numbers(ask) == [*range(1, 26)]


def test_a_process_that_another_spool_exports_by_now_is_left_to_it(
    live: ProcessFolder, ask: Ask, store: Store, tmp_path: Path
) -> None:
    """The store had lost who exports it, too."""
    folder, writer = live, trace_writer(capacity=64, rows=0)
    record(folder, writer, 20)
    spool_of(store, tmp_path / "one", "one").export(folder)
    put_back(store, {})
    record(folder, writer, 5)
    spool_of(store, tmp_path / "two", "two").export(folder)
    with pytest.raises(HistoryBusy, match=r"^process \d+ of .* from another spool"):
        spool_of(store, tmp_path / "one", "one").export(folder)
    assert numbers(ask) == [*range(1, 26)]


def test_rows_that_are_gone_are_shown(ended: Made, url: str, store: Store) -> None:
    """By the rows that are there, whatever the books of the exports say."""
    folder, place = ended(started_ns=CLOCK_OFFSET_NS), bucket_of(url, os.environ)
    trace_writer(capacity=64, rows=20).save(folder.ring("torch_trace"))
    changes = RingWriter(TABLES_BY_NAME["changes"], capacity=64)  # it is in the other schema
    changes.write()
    changes.save(folder.ring("changes"))
    place.export(folder)

    def shown() -> str:
        (kept,) = find_kept(url, ("node1",), timeout_s=60, notes=[])
        found = screen_of(kept, rank=None)
        return render_kept_run(found, url, found.run, width=100, color=False)

    assert "kept      every row that was recorded is kept" in shown()
    store.remove(one.name for one in store.objects() if "torch_trace" in one.name)
    assert "not kept  20 rows exported, and not there any more: torch_trace 20" in shown()
