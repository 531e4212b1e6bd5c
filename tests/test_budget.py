"""What is left out of the record to keep its cost within a budget, and how it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from tests.support import Target

pytestmark = pytest.mark.torch


def test_the_smallest_modules_are_left_out_and_named(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 modules that do nothing cost more than a percent: they go, the large one stays."""
    target = program("tiny_modules", PROBING="1", PROBING_OVERHEAD="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    assert process.status().problems == ()
    rows = process.query(
        "SELECT step, max(thinned) AS thinned, max(rows) AS rows FROM probing.overhead"
        " WHERE step IN (0, 39) GROUP BY step ORDER BY step"
    ).to_pylist()
    assert rows[0]["thinned"] == 0
    assert rows[0]["rows"] > 2000
    assert 1000 < rows[1]["thinned"] <= 2000
    last = process.query(
        "SELECT count(*) FILTER (module = 'large' AND stage = 'forward') AS large,"
        " count(*) FILTER (module LIKE 'tiny.%') AS tiny,"
        " count(*) FILTER (module = 'Model' AND stage = 'backward') AS backward"
        " FROM python.torch_trace WHERE step = 39"
    ).to_pylist()[0]
    assert last["large"] == 1
    assert last["backward"] == 1
    assert last["tiny"] == 2000 - rows[1]["thinned"]
    live = process.live("sources")
    notes = [str(row[-1]) for row in live.rows if row[0] == "modules"]
    assert "left out, to keep within the budget: tiny." in notes[0]
    done = target.run(str(target.pid), "status")
    assert done.returncode == 0, done.stderr
    assert "left out, to keep within the budget: tiny." in done.stdout
    assert "recording costs" in done.stdout


def test_nothing_is_left_out_where_it_costs_little(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a budget that is large enough, every module is in the record of every step."""
    target = program("tiny_modules", PROBING="1", PROBING_OVERHEAD="100000")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    rows = process.query(
        "SELECT step, count(*) AS n FROM python.torch_trace"
        " WHERE stage = 'forward' AND step < 40 GROUP BY step"
    ).to_pylist()
    assert {row["n"] for row in rows} == {2002}
    assert {row["step"] for row in rows} == set(range(40))
