"""Sums of losses, some of which are on their way from a device."""

from __future__ import annotations

from math import inf, nan

import pytest

pytest.importorskip("torch")

from probing.agent.sources.numbers.number import Number
from probing.agent.sources.steps.rows.losses import (
    CommonShare,
    Loss,
    MeanLoss,
    Total,
    add_losses,
)
from probing.ring.format import NULL_FLOAT

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


def test_a_sum_with_one_that_is_not_known_is_none() -> None:
    """Nor is it taken for one that is not finite, also as a part of another sum."""
    late = Later(None)
    total = Total(Total(Number(1.0), Number(NULL_FLOAT)), late)  # type: ignore[arg-type]
    late.value = 2.0
    assert total.read() is NULL_FLOAT
    assert Total(total, Number(1.0)).read() is NULL_FLOAT


@pytest.mark.parametrize(
    ("values", "mean"), [((inf, -inf), nan), ((1.5e308, 1.5e308), inf), ((inf, 1.0), inf)]
)
def test_a_step_has_a_loss_whatever_its_losses_are(values: tuple[float, ...], mean: float) -> None:
    """Both infinities in one step, or more than a float holds, keep no step from ending."""
    losses = [Loss(Number(value), None) for value in values]
    assert MeanLoss(losses).read() == pytest.approx(mean, nan_ok=True)


def test_the_share_of_several_losses_may_still_be_on_its_way() -> None:
    """It is theirs where it is the same of all; else they stand for themselves."""
    late = Later(None)
    share = CommonShare([Later(0.25), late])  # type: ignore[list-item]
    assert share.read() is None
    late.value = 0.25
    assert share.read() == 0.25
    late.value = 0.5
    assert share.read() == 1.0


@pytest.mark.slow
def test_passes_that_no_step_ends_are_not_kept_for_ever() -> None:
    """The first and the newest stay, and how many of them were thrown away is still known."""
    losses: list[Loss] = []
    dropped = 0
    for number in range(200_000):
        dropped = add_losses(losses, [Loss(Number(float(number)), None)], dropped)
        if number == 99_999:
            dropped = len(losses)
    assert len(losses) < 50_000
    values = [loss.number.read() for loss in losses]
    assert (values[0], values[-1]) == (0.0, 199_999.0)
    assert values[1:] == [float(number) for number in range(200_001 - len(losses), 200_000)]
    assert dropped == 1  # the first, since all the others that were are gone
