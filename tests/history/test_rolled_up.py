"""Old rows of modules rolled up: medians stay, no call is lost or counted twice."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from typing import Any

import pytest
from pyarrow import fs

from probing.cli.questions.library import QUESTIONS
from probing.cli.questions.records import put_in
from probing.cli.reports.run.kept import screen_of
from probing.diagnosis.runs.kept import find_kept
from probing.errors import UsageError
from probing.history.compaction import merge as merging
from probing.history.compaction.keep import Keep
from probing.history.compaction.outcome import Limits
from probing.history.query import History
from probing.history.stores.address import is_url
from probing.history.stores.objects import Store, open_store
from probing.history.stores.place import Place, place_of
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import CLOCK_OFFSET_NS, trace_values, trace_writer

pytestmark = pytest.mark.anypython

Ask = Callable[[str], list[dict[str, Any]]]
DAY_NS = 86_400 * 10**9
CALLS = 3
"""Calls of a module in a step."""
MEDIANS = """SELECT module, stage, round(median(duration), 9) AS s,
  sum(coalesce(calls, 1)) AS calls, round(sum(coalesce(total_s, duration)), 12) AS total_s,
  max(allocated_bytes) AS bytes
FROM torch_trace GROUP BY ALL ORDER BY ALL"""


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where the history is."""
    of = {"folder": "root", "store": "url"}[request.param]
    return place_of(str(request.getfixturevalue(of)), os.environ)


@pytest.fixture
def files(place: Place) -> Store:
    """Its files, each with its name, as those of a store are."""
    local = Store(place.name, fs.LocalFileSystem, place.name)
    return open_store(place.name) if is_url(place.name) else local


@pytest.fixture
def ask(place: Place) -> Ask:
    """Rows of the history."""
    return lambda sql: History(place.name).query(sql, timeout_s=60).to_pylist()


@pytest.fixture
def exported(
    ended: Callable[..., ProcessFolder], place: Place
) -> Callable[[int, int], ProcessFolder]:
    """Exports so many steps of a day, a file for each ten."""
    folder, writer = ended(started_ns=CLOCK_OFFSET_NS), trace_writer(capacity=4096)
    now_ns = int(dt.datetime.now(dt.timezone.utc).timestamp() * 1e9)

    def export(steps: int, days_ago: int) -> ProcessFolder:
        for step in range(steps):
            for call in range(CALLS):
                for module in (0, 1):
                    number = writer.written + 1
                    took_ns = (step + 1) * 1000 + call
                    at_ns = now_ns - days_ago * DAY_NS - CLOCK_OFFSET_NS
                    changed = {"step": step, "module": module, "class": module, "stage": 0}
                    times = {"start_ns": at_ns, "duration_ns": took_ns, "duration": took_ns / 1e9}
                    writer.write(**{**trace_values(number), **changed, **times})
            if step % 10 == 9:
                writer.save(folder.ring("torch_trace"))
                place.export(folder)
        return folder

    return export


def test_medians_stay_and_no_call_is_lost(
    exported: Callable[[int, int], ProcessFolder], place: Place, ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also of steps that two pieces of a file share; again, it is the same; new days stay."""
    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 64)
    folder = exported(20, 5)
    wanted = ask(MEDIANS)
    exported(10, 0)
    done = place.compact(Keep(whole_days=2))
    assert (done.rolled_rows, done.notes) == (20 * CALLS * 2, [])
    rows = ask("SELECT * FROM torch_trace WHERE calls IS NOT NULL ORDER BY step, module")
    assert len(rows) == 20 * 2
    assert {(row["calls"], row["seq"], row["start_ns"], row["duration_ns"]) for row in rows} == {
        (CALLS, None, None, None)
    }
    assert rows[0]["duration"] == pytest.approx(1001e-9)
    assert rows[0]["total_s"] == pytest.approx(3003e-9)
    found = ask(MEDIANS.replace("GROUP", f"WHERE day = '{rows[0]['day']}' GROUP"))
    assert found == wanted
    assert ask("SELECT count(*) AS n FROM torch_trace WHERE calls IS NULL") == [{"n": 60}]
    assert place.compact(Keep(whole_days=2)).rolled_rows == 0
    place.compact()
    exported(10, 5)
    assert place.compact(Keep(whole_days=2)).rolled_rows == 10 * CALLS * 2
    assert place.export(folder).notes == ()
    assert ask("SELECT sum(coalesce(calls, 1)) AS n FROM torch_trace") == [{"n": 240}]
    (kept,) = find_kept(place.name, ("node1",), timeout_s=60, notes=[])
    assert [row for row in screen_of(kept, rank=None).not_kept if row["gone"]] == []
    if is_url(place.name):  # a store is told once what a process is that has ended
        return
    assert ask("SELECT exported FROM exports WHERE name = 'torch_trace'") == [{"exported": 240}]
    for one in QUESTIONS:
        ask(put_in(one.sql, {}, one.parameters))


def test_rows_that_come_meanwhile_are_left_for_the_next_time(
    exported: Callable[[int, int], ProcessFolder], place: Place, ask: Ask
) -> None:
    """Exports and queries go on: whatever is asked between two things that are done, is there."""
    exported(10, 5)
    seen: list[int] = []

    def meanwhile() -> bool:
        seen.extend(row["n"] for row in ask("SELECT sum(coalesce(calls, 1)) AS n FROM torch_trace"))
        exported(10, 5)
        return False

    done = place.compact(Keep(whole_days=2), Limits(is_asked=meanwhile))
    assert (done.rolled_rows, done.notes) == (10 * CALLS * 2, [])
    assert seen == [60 * (number + 1) for number in range(len(seen))]
    assert len(seen) > 1
    assert place.compact(Keep(whole_days=2)).rolled_rows == 60 * len(seen)
    assert ask("SELECT sum(calls) AS n FROM torch_trace") == [{"n": 60 * (len(seen) + 1)}]


def test_what_may_not_be_is_left(
    exported: Callable[[int, int], ProcessFolder], place: Place, files: Store
) -> None:
    """A damaged file stays and is told, once; nothing is begun once the time is up; no day."""
    exported(30, 5)
    torn = next(one.name for one in files.objects("project=train") if "torch_trace" in one.name)
    files.put(torn, (files.get(torn) or b"")[:-30])
    assert place.compact(Keep(whole_days=1), Limits(until_s=0)).rolled_rows == 0
    done = place.compact(Keep(whole_days=1))
    assert done.rolled_rows == 20 * CALLS * 2
    assert [f"{place.name}/{torn}" in note for note in done.notes] == [True]
    exported(10, 5)
    whole = [one.name for one in files.objects("project=train") if "torch_trace" in one.name]
    merged = next(name for name in whole if "merged-" in name)
    files.put(merged, (files.get(merged) or b"")[:-30])
    done = place.compact(Keep(whole_days=1))
    assert done.rolled_rows == 10 * CALLS * 2
    assert [sum(name in note for note in done.notes) for name in (torn, merged)] == [1, 1]
    assert {torn, merged} <= {one.name for one in files.objects("project=train")}
    with pytest.raises(UsageError, match="one day at least"):
        Keep(whole_days=0)
