"""Which steps are of one training, and where the learning rate was raised far above all before.

Rules of this file: pure functions of steps, for every rule that goes by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .....units import figure
from ...facts import Facts, Steps
from ...not_looked_at import NotLookedAt
from ...series import Floats

FEW_STEPS = 50
RATE_JUMP = 3.0
_AROUND, _WORSE = 20, 1.2
_BEFORE = 30
"""A loss is set beside those of so many steps before it."""
_TINY_RATE = 1e-6
"""A weight of usual size takes a million steps of Adam at it to change as much as it is."""


TRAINED = (
    "SELECT optimizer, model, min(step) AS first, max(step) AS last FROM python.optimizer_steps"
    " WHERE optimizer IS NOT NULL GROUP BY ALL"
)


class _FromItsStart(Steps):
    """The steps of a training that was not the first of its process."""

    @property
    def begins_at_start(self) -> bool:
        """Its first steps are on record."""
        return bool(self.rows)


def newest_training(facts: Facts) -> Steps:
    """The steps of the newest of several trainings that a process makes one after the other.

    As in a search for the rate, or fold by fold: each has a model and an optimizer of its own.

    Raises:
        NotLookedAt: There is no record of steps.
    """
    steps, first = facts.steps, first_of_newest(facts)
    if not first or not len(steps) or steps.numbers[0] >= first:
        return steps
    return _FromItsStart([row for row in steps.rows if row["step"] >= first])


def first_of_newest(facts: Facts) -> int:
    """The first step of that training; 0 where there is only one."""
    return max(_firsts(facts, ("optimizer", "model")), default=0)


def firsts_of_optimizers(facts: Facts) -> list[int]:
    """The steps from which on no optimizer steps that had stepped before, the first left out."""
    return _firsts(facts, ("optimizer",))


def _firsts(facts: Facts, kinds: Sequence[str]) -> list[int]:
    """The steps from which on nothing of some kinds steps that had stepped before."""
    try:
        rows = facts.rows(TRAINED)
    except NotLookedAt:
        return []
    spans: dict[tuple[str, str | None], tuple[int, int]] = {}
    for row in rows:
        for kind in kinds:
            first, last = spans.get((kind, row[kind]), (row["first"], row["last"]))
            span = min(first, row["first"]), max(last, row["last"])
            spans[kind, row[kind]] = span
    firsts = sorted({first for first, _ in spans.values()})
    return [at for at in firsts[1:] if not any(a < at <= b for a, b in spans.values())]


class Raise(NamedTuple):
    """The rate was raised.

    Attributes:
        place: The first step with it, as a place among the steps.
        step: Its number.
        before: The rate of the step before.
        after: The rate since.
    """

    place: int
    step: int
    before: float
    after: float

    @property
    def sentence(self) -> str:
        """What was done to the rate."""
        return (
            f"the learning rate was multiplied by {figure(self.after / self.before, 3)} at step"
            f" {self.step}, from {figure(self.before, 3)} to {figure(self.after, 3)}"
        )


def raised(steps: Steps) -> Iterator[Raise]:
    """Each step whose rate is far above all before it, of those that have enough before them."""
    rates = steps.column("lr")
    known = np.isfinite(rates)
    for place in range(FEW_STEPS, len(rates)):
        earlier = rates[:place][known[:place]]
        if not known[place] or not len(earlier) or earlier[-1] <= 0:
            continue
        if rates[place] < RATE_JUMP * max(float(earlier.max()), float(earlier[-1])):
            continue
        yield Raise(place, steps.numbers[place], float(earlier[-1]), float(rates[place]))


def cause_of(steps: Steps) -> Raise | None:
    """The raise of the rate after which the loss went up; None where there is none."""
    return next((one for one in raised(steps) if losses_around(steps, one).is_worse), None)


def tiny_rate(steps: Steps) -> str:
    """Said of a rate that never was large enough to change a model; empty for any other."""
    rates = steps.column("lr")
    most = float(rates.max()) if len(rates) else math.nan
    newest = "" if steps.begins_at_start else f" in the last {len(steps):,}"
    return f"; the learning rate was {figure(most, 2)} at most{newest}" * (most < _TINY_RATE)


def rate_words(steps: Steps) -> tuple[str, ...]:
    """The rate of the newest step, as evidence."""
    rate = steps.rows[-1]["lr"]
    return () if rate is None else (f"the learning rate is {figure(rate, 3)}",)


def is_restart(steps: Steps, place: int) -> bool:
    """Whether the rate jumps back to what it had been, as a schedule with restarts has it."""
    rates = steps.column("lr")
    is_jump = jump_at(steps, place) is not None
    return is_jump and bool(rates[place] < 1.05 * np.nanmax(rates[: place - 5]))


def jump_at(steps: Steps, place: int) -> float | None:
    """By what the rate was multiplied within a few steps before a place, if by much."""
    rates = steps.column("lr")
    old, new = middle_of(rates[max(0, place - 20) : max(1, place - 5)]), rates[place]
    return float(new / old) if old > 0 and new > RATE_JUMP * old else None


def begins_anew(facts: Facts, steps: Steps, place: int) -> bool:
    """Whether optimizers that made the steps shortly before make none any more, but others do.

    As where a model is trained on, with other data or another loss. Where the rate is raised with
    that, it is the rate that is told.
    """
    begin, end = steps.numbers[max(0, place - _BEFORE)], steps.numbers[place]
    is_new = any(begin < first <= end for first in firsts_of_optimizers(facts))
    return is_new and jump_at(steps, place) is None


class Around(NamedTuple):
    """The losses in the middle, before the rate was raised and after it."""

    before: float
    after: float

    @property
    def is_worse(self) -> bool:
        """Whether they went up by a fifth, or are no numbers any more."""
        ends = not math.isfinite(self.after)
        return math.isfinite(self.before) and (ends or self.after > _WORSE * self.before)


def losses_around(steps: Steps, raise_: Raise) -> Around:
    """The losses of the twenty steps on each side of a raise."""
    losses, place = steps.column("loss"), raise_.place
    return Around(
        middle_of(losses[max(0, place - _AROUND) : place]),
        middle_of(losses[place : place + _AROUND]),
    )


def middle_of(values: Floats) -> float:
    """The median of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan
