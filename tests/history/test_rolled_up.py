"""Old rows of modules rolled up: medians stay, no call is lost or counted twice."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probing.cli.questions.library import QUESTIONS
from probing.cli.questions.records import put_in
from probing.errors import UsageError
from probing.history.compaction import merge as merging
from probing.history.compaction.folder import compact_folder
from probing.history.compaction.keep import Keep
from probing.history.compaction.outcome import Limits
from probing.history.export import export_process
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import CLOCK_OFFSET_NS, trace_values, trace_writer

pytestmark = pytest.mark.anypython

Ask = Callable[[str], list[dict[str, Any]]]
DAY_NS = 86_400 * 10**9
CALLS = 3
"""Calls of a module in a step."""
MEDIANS = """SELECT module, stage, round(median(duration), 9) AS s, sum(coalesce(calls, 1)) AS calls
FROM torch_trace GROUP BY ALL ORDER BY ALL"""


@pytest.fixture
def exported(
    ended: Callable[..., ProcessFolder], root: Path
) -> Callable[[int, int], ProcessFolder]:
    """Exports so many steps of a day, a file for each ten."""
    folder, writer = ended(), trace_writer(capacity=4096)
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
                export_process(folder, root)
        return folder

    return export


def test_medians_stay_and_no_call_is_lost(
    exported: Callable[[int, int], ProcessFolder], root: Path, ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also of steps that two pieces of a file share; again, it is the same; new days stay."""
    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 64)
    folder = exported(20, 5)
    wanted = ask(MEDIANS)
    exported(10, 0)
    done = compact_folder(root, Keep(whole_days=2))
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
    assert compact_folder(root, Keep(whole_days=2)).rolled_rows == 0
    compact_folder(root)
    exported(10, 5)
    assert compact_folder(root, Keep(whole_days=2)).rolled_rows == 10 * CALLS * 2
    assert export_process(folder, root).notes == ()
    assert ask("SELECT sum(coalesce(calls, 1)) AS n FROM torch_trace") == [{"n": 240}]
    assert ask("SELECT exported FROM exports WHERE name = 'torch_trace'") == [{"exported": 240}]
    for one in QUESTIONS:
        ask(put_in(one.sql, {}, one.parameters))


def test_what_may_not_be_is_left(
    exported: Callable[[int, int], ProcessFolder], root: Path, ask: Ask
) -> None:
    """A damaged file stays and is told; nothing is begun once the time is up; no day, no store."""
    exported(30, 5)
    torn, *_ = sorted(root.glob("project=*/job=*/table=torch_trace/day=*/*.parquet"))
    torn.write_bytes(torn.read_bytes()[:-30])
    assert compact_folder(root, Keep(whole_days=1), Limits(until_s=0)).rolled_rows == 0
    done = compact_folder(root, Keep(whole_days=1))
    assert done.rolled_rows == 20 * CALLS * 2
    assert str(torn) in " ".join(done.notes)
    with pytest.raises(UsageError, match="one day at least"):
        Keep(whole_days=0)
