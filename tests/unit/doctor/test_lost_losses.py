"""What is said of two runs of which one, or both, lost their loss: it is NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from probing.cli.render.ranks.runs import (
    markdown_comparison,
    plain_comparison,
    render_comparison,
)
from probing.diagnosis.doctor.against import findings_of, with_comparison
from probing.diagnosis.runs.comparison import RunComparison

from .made import steps
from .test_runs import BASE, EMPTY, compared, run

pytestmark = pytest.mark.anypython

LOSSES = [row["loss"] for row in steps(200)]
LR = ("argument", "--lr")


def lost(since: int, value: float = math.nan, better: float = 0.0) -> Callable[[int], float]:
    """A loss that is no number since a step, and better by so much before."""
    return lambda step: value if step >= since else LOSSES[step] - better


def told(found: RunComparison) -> tuple[list[str], str]:
    """The rules of the findings, the first one first, and the text."""
    findings = findings_of(found, ("1", "2"))
    text = render_comparison(found, findings, width=100, color=False)
    assert "NaN" in markdown_comparison(found, findings)
    return [finding.rule for finding in findings], " ".join(text.split())


@pytest.mark.parametrize("better", [0.0, 0.5])
@pytest.mark.parametrize("since", [3, 30, 100])
def test_a_run_that_lost_its_loss_is_told_first(since: int, better: float) -> None:
    """Since which step, and what may explain it; it is not the run with the better loss."""
    found = compared(
        run("1"), run("2", loss=lost(since, better=better), environment=BASE | {LR: "9.0"})
    )
    rules, text = told(found)
    assert rules == ["loss-lost-unlike-before"]
    assert found.effects[0].summary == (
        f"The loss of run 2 has been NaN since step {since}; the last of run 1, in step 199,"
        " is finite: argument --lr is 9.0, and was 0.1"
    )
    assert "1 The loss of run 2" in text
    before, after = plain_comparison(found)["runs"]
    assert (before["first_not_finite_step"], before["not_finite_since"]) == (None, None)
    assert (after["first_not_finite_step"], after["not_finite_since"]) == (since, since)
    assert after["not_finite_steps"] == 200 - since
    assert found.losses is not None
    assert (found.losses.compared, found.losses.common) == (200, since)
    assert found.losses.same_until == (0 if better else since)
    report = with_comparison(EMPTY, found, ("1", "2"))
    assert "loss-lost-unlike-before" in {finding.rule for finding in report.findings}


def test_a_run_that_keeps_its_loss_is_better() -> None:
    """The earlier one lost it: that is told, and nothing is wrong with the later one."""
    found = compared(run("1", loss=lost(100, math.inf, better=0.5)), run("2"))
    rules, text = told_infinite(found)
    assert rules == ["loss-lost-unlike-before"]
    assert "The loss of run 1 has been infinite since step 100" in text
    assert with_comparison(EMPTY, found, ("1", "2")).findings == ()


def told_infinite(found: RunComparison) -> tuple[list[str], str]:
    """As `told`, where no loss is NaN."""
    findings = findings_of(found, ("1", "2"))
    text = render_comparison(found, findings, width=100, color=False)
    return [finding.rule for finding in findings], " ".join(text.split())


def test_runs_that_lost_it_alike_are_alike() -> None:
    """NaN is the same as NaN: no finding, and the text says of both since when."""
    found = compared(run("1", loss=lost(100)), run("2", loss=lost(100)))
    rules, text = told(found)
    assert rules == []
    assert found.losses is not None
    assert found.losses.same_until is None
    same = "the losses of all 200 common steps are the same to the last bit"
    assert f"{same}, NaN or infinite as they are" in text
    for name in ("1", "2"):
        assert f"the loss of run {name} has been NaN since step 100" in text


def test_the_one_that_lost_it_earlier_is_worse() -> None:
    """Both did, at unlike steps."""
    found = compared(run("1", loss=lost(150)), run("2", loss=lost(100)))
    assert told(found)[0] == ["loss-lost-unlike-before"]
    (effect,) = found.effects
    assert "run 2 has been NaN since step 100; the loss of run 1 has been NaN since" in (
        effect.summary
    )
    assert effect.is_worse


def test_a_step_that_a_scaler_left_out_is_no_lost_run() -> None:
    """A loss that is finite again later is told below, and its steps are not the same."""
    found = compared(
        run("1"), run("2", loss=lambda step: math.inf if step in {7, 9} else LOSSES[step])
    )
    rules, text = told_infinite(found)
    assert rules == []
    assert "the loss of run 2 is NaN or infinite in 2 steps, first in step 7" in text
    assert "up to step 6; " in text
    assert " in the last quarter of the 198 finite ones" in text
    assert plain_comparison(found)["runs"][1]["not_finite_since"] is None


def test_losses_of_no_number_have_no_level() -> None:
    """Too few are finite in both: what is the same is told, and that the level is not."""
    found = compared(run("1", loss=lost(9)), run("2", loss=lost(9)))
    assert found.losses is not None
    assert (found.losses.before, found.losses.common) == (None, 9)
    assert ("loss", "there are too few steps of which both have a finite loss") in (
        found.not_looked_at
    )
    assert plain_comparison(found)["loss"]["before"] is None
    assert told(found)[0] == []
