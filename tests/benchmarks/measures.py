"""Figures and what is asked of them, and how two things are measured in turn.

Rules of this file: arithmetic only; nothing is started, printed or imported from probing here.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure.

    Attributes:
        what: What was measured, for the table.
        unit: What the values are counted in.
        values: One value of each pair or round.
        must: What the median must not exceed.
        aim: What it is meant to reach.
        interval: Between which values the median lies with 95 % confidence, where that was asked.
        note: What the reader should know beside it.
    """

    what: str
    unit: str
    values: tuple[float, ...]
    must: float | None = None
    aim: float | None = None
    interval: tuple[float, float] | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The value that stands for all."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """What the median is worth: ``aim``, ``must``, ``MISSED``, or ``reference``.

        With an interval the aim is reached when the values do not show that it is not.
        """
        if self.must is None:
            return "reference"
        if self.median > self.must:
            return "MISSED"
        least = self.interval[0] if self.interval else self.median
        return "aim" if self.aim is not None and least <= self.aim else "must"


def measure_in_turn(rounds: int, *things: Callable[[], T]) -> tuple[tuple[T, ...], ...]:
    """Measure each thing once per round; returns each thing's values.

    Every other round goes backwards, so that a machine that grows slower favours none.
    """
    values: list[list[T]] = [[] for _ in things]
    for number in range(rounds):
        places = range(len(things)) if number % 2 == 0 else reversed(range(len(things)))
        for place in places:
            values[place].append(things[place]())
    return tuple(tuple(column) for column in values)


def differences(measured: Sequence[float], bare: Sequence[float]) -> tuple[float, ...]:
    """What the measured thing took more, pair by pair."""
    return tuple(a - b for a, b in zip(measured, bare, strict=True))


def slowdowns(measured: Sequence[float], bare: Sequence[float]) -> tuple[float, ...]:
    """How many per cent longer the measured thing took, pair by pair."""
    return tuple(100 * (a / b - 1) for a, b in zip(measured, bare, strict=True))


def scaled(values: Sequence[float], factor: float) -> tuple[float, ...]:
    """The values in another unit."""
    return tuple(value * factor for value in values)


def rounds_for(rounds: int, effort: float, *, least: int = 3) -> int:
    """How many rounds an effort allows: `rounds` for 1, and never less than `least`."""
    return max(least, round(rounds * effort))


def bootstrap_median(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by resampling; the same for the same values."""
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES)
    )
    return medians[_RESAMPLES // 40], medians[-1 - _RESAMPLES // 40]
