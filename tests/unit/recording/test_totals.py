"""Sums of losses, some of which are on their way from a device."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from probing.agent.sources.steps.rows.losses import Total

pytestmark = pytest.mark.torch


class Later:
    """A number that comes when it is told to."""

    def __init__(self, value: float | None) -> None:
        self.value = value

    def read(self) -> float | None:
        """What has come."""
        return self.value


def test_thousands_of_passes_in_one_step_are_added_up() -> None:
    """A sum of sums is no deeper than one."""
    total = Total(Later(1.0))  # type: ignore[arg-type]
    for _ in range(5000):
        total = Total(total, Later(1.0))  # type: ignore[arg-type]
    assert total.read() == 5001.0


def test_a_sum_is_known_when_all_of_it_has_come() -> None:
    """Until then it is not, and nothing counts twice."""
    late = Later(None)
    total = Total(Total(Later(1.0), late), Later(2.0))  # type: ignore[arg-type]
    assert total.read() is None
    assert total.read() is None
    late.value = 4.0
    assert total.read() == 7.0
    assert total.read() == 7.0
