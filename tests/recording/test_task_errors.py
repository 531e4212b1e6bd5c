"""Exceptions of tasks that nobody waited for, and what became of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch


def test_it_is_known_which_exceptions_nobody_asked_for(program: Callable[..., Target]) -> None:
    """Whoever asks gets what it gets without us; what went unasked is lost; the end leaves none."""
    target = program("failed_tasks", PROBING="0")
    assert target.process.wait(DEADLINE_S) == 0, target.output
    rows = [line for line in target.output.splitlines() if line.startswith("Failure")]
    assert rows == [
        "Failure: lost|fail|failed_tasks.py|True",
        "Failure: result|fail|failed_tasks.py|False",
        "Failure: exception|fail|failed_tasks.py|False",
        "Failure: callback|fail|failed_tasks.py|False",
        "Failure: waited|fail|failed_tasks.py|False",
        "Failure: kept|fail|failed_tasks.py|None",
    ]
