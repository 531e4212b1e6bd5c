"""What a record says when somebody sets the machine's clock while it is being made."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import probing
from probing.ring.peek import RingPeek
from tests import faults
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch

JUMPS = 8


@pytest.mark.fault("R4")
def test_setting_the_clock_changes_neither_order_nor_durations(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, fault: faults.Reached
) -> None:
    """By an hour and by ten years, forward and back: the record is that of the monotonic clock."""
    target = program("clock_set")
    target.wait_for_output("ready", 2 * DEADLINE_S)  # it imports torch
    told = [json.loads(line) for line in target.output.splitlines() if line.startswith("[")]
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    with RingPeek(target.folder.ring("steps")) as ring:
        offset_ns = ring.header.clock_offset_ns
    rows = process.query(
        f"SELECT start_ns - ({offset_ns}) AS start_ns, duration_ns FROM python.steps"
        f" WHERE step <= {JUMPS} AND duration_ns IS NOT NULL ORDER BY step"
    ).to_pylist()
    assert len(rows) == JUMPS + 1
    starts = [row["start_ns"] for row in rows]
    fault.equals("steps in their order", expected=True, got=starts == sorted(starts))
    within = [
        before <= row["start_ns"] < row["start_ns"] + row["duration_ns"] <= behind
        for row, (before, _), (_, behind) in zip(rows, [told[0], *told], told, strict=False)
    ]  # a step begins where the one before it ended
    fault.equals("steps within what the monotonic clock says", len(rows), sum(within))
    (mixed,) = process.query(
        "SELECT count(*) AS n FROM python.metrics AS m JOIN python.steps AS s USING (step)"
        " WHERE s.duration_ns IS NOT NULL AND m.start_ns NOT BETWEEN s.start_ns"
        " AND s.start_ns + s.duration_ns"
    ).to_pylist()
    fault.equals("rows of another table outside of their step", 0, mixed["n"])
    listed = json.loads(target.run("list", "--format", "json").stdout)
    states = [(one["state"], one["step_age_s"] < 600) for one in listed]
    fault.equals("`probing list`, an hour later by the clock", [("training", True)], states)
