"""What a script tells of itself, and what becomes of it without an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def ask(program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Asks the record of the program that marks."""
    target = program("marked", "with_agent", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    assert process.status().problems == ()
    return lambda sql: process.query(sql).to_pylist()


def test_marks_do_nothing_without_an_agent(program: Callable[..., Target]) -> None:
    """A script may keep its marks when nobody looks."""
    program("marked", "without_agent", PROBING="0").wait_for_output("ready")


def test_steps_are_those_that_the_script_marks(ask: Ask) -> None:
    """From the first mark on, optimizer steps count no more: two of them are in each step."""
    rows = ask(
        "SELECT step, count(*) AS n FROM python.torch_trace WHERE stage = 'optimizer'"
        " GROUP BY step ORDER BY step"
    )
    # Until the first mark, each optimizer step was one: 0 and 1; the mark ended the third.
    assert [(row["step"], row["n"]) for row in rows] == [(0, 1), (1, 1), (3, 2), (4, 2)]
    steps = ask("SELECT step FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["step"] for row in steps] == [0, 1, 2, 3, 4]


def test_spans_are_rows_that_may_be_open(ask: Ask) -> None:
    """Decorated, nested and failed ones are told apart, and the one in progress is open."""
    rows = ask("SELECT name, depth, failed, duration FROM python.spans ORDER BY seq")
    told = [(row["name"], row["depth"], row["failed"]) for row in rows]
    once = [("evaluate", 0, False), ("inner", 1, False), ("broken", 0, True)]
    assert told == [*once * 3, ("open", 0, None)]
    assert [row["duration"] is None for row in rows] == [False] * 9 + [True]


def test_metrics_are_numbers_or_null(ask: Ask) -> None:
    """Numbers and tensors of one element are read; what is no number is NULL, and harms nobody."""
    rows = ask("SELECT name, value FROM python.metrics ORDER BY seq")
    values: dict[str, list[float | None]] = {}
    for row in rows:
        values.setdefault(row["name"], []).append(row["value"])
    nothing = [None] * 3
    assert values == {
        "reward": [0.0, 0.5, 1.0],
        "count": [0.0, 1.0, 2.0],
        "flag": [1.0] * 3,
        "tensor": [0.25] * 3,
        "right": [2.0] * 3,
        "all_right": [0.0] * 3,
        "one": [9.0] * 3,
        "imaginary": nothing,
        "text": nothing,
        "nothing": nothing,
        "many": nothing,
        "huge": nothing,
        "word": nothing,
        "day": nothing,
        "complex": nothing,
        "closed": nothing,
        "half": [0.5] * 3,
    }
