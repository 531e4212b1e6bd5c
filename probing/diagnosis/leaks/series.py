"""How a figure of memory develops over the steps: flat, a staircase, or a slope.

Rules of this file: pure functions of their arguments. A verdict speaks of the end of the series:
what grew once and stands still is flat. It compares *floors*, the lowest values of four spans of
equal length: what a leak holds never goes, so it lifts the floor, and what is there for a while
only does not. Where the steps are too few, the verdict says so instead of guessing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Literal, NamedTuple

from ...messages.frozen import dataclass

Kind = Literal["flat", "staircase", "slope", "uneven", "unknown"]

LEAST_STEPS = 8
"""Fewer steps are not judged."""
_SPANS = 4
_MOST_POINTS = 400
_MOST_FITTED = 150
_LEAST_SHARE = 0.3
"""Each span must rise by this part of the mean rise: what levels off is no leak."""
_SURE = 5.0
"""By so many standard deviations the values must rise in all,"""
_LIKELY = 2.0
"""and by so many beside the one jump that explains most of it."""
_MANY = 20
"""So many steps show growth by the order of their values; fewer must lie close to a line."""
_LINE_OF_FEW = 0.9
_MOSTLY = 0.6
"""A slope rises in at least this part of its steps, a staircase in fewer."""


class Point(NamedTuple):
    """One figure at the end of a step."""

    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How a series develops.

    Attributes:
        kind: ``unknown`` where the steps are too few; ``uneven`` where it grows by what is known
            of its parts, and others come and go beside them.
        steps: How many steps it rests on.
        slope: By how much it grows per step; 0 where it is flat.
        first_step: The step from which on it grows; None where it does not.
        r2: The share of the variance that a straight line from there explains; None where it does
            not grow.
        rise: By how much it has grown since `first_step`.
        last: The last value; None where there is none.
    """

    kind: Kind
    steps: int
    slope: float = 0.0
    first_step: int | None = None
    r2: float | None = None
    rise: float = 0.0
    last: float | None = None

    @property
    def grows(self) -> bool:
        """Whether it is a staircase or a slope."""
        return self.kind in {"staircase", "slope"}


def classify(points: Sequence[Point], *, least_rise: float = 0.0) -> Trend:
    """Say how a series develops.

    Args:
        points: At most one per step, in the order of the steps.
        least_rise: A rise of no more than this is none: what the allocator rounds to, or what a
            process gains and loses by itself.
    """
    count = len(points)
    last = points[-1].value if points else None
    if count < LEAST_STEPS:
        return Trend(kind="unknown", steps=count, last=last)
    span = _growing_window(points, least_rise)
    if span is None:
        return Trend(kind="flat", steps=count, last=last)
    slope = _slope_of(points[-span:])
    begin = _first_of_growth(points, count - span, slope)
    grown = points[begin:]
    rises = sum(1 for a, b in pairwise(grown) if b.value > a.value)
    is_slope = rises >= _MOSTLY * (len(grown) - 1)
    return Trend(
        kind="slope" if is_slope else "staircase",
        steps=count,
        slope=slope,
        first_step=grown[0].step,
        r2=_fit(grown),
        rise=grown[-1].value - grown[0].value,
        last=last,
    )


def _growing_window(points: Sequence[Point], least_rise: float) -> int | None:
    """The longest part up to the end that grows in all of it; None where there is none.

    Shorter and shorter parts are looked at, so that what began to grow lately is found too.
    """
    span = len(points)
    while span >= min(len(points), _MANY):
        if _is_growing(points[-span:], least_rise):
            return span
        span = span * 3 // 4
    return None


def _is_growing(points: Sequence[Point], least_rise: float) -> bool:
    """Whether the floor of each span lies clearly above that of the span before."""
    values = [point.value for point in points]
    size = len(values) / _SPANS
    spans = [values[round(i * size) : round((i + 1) * size)] for i in range(_SPANS)]
    floors = [min(span) for span in spans]
    rises = [b - a for a, b in pairwise(floors)]
    total = floors[-1] - floors[0]
    if total <= least_rise or min(rises) < _LEAST_SHARE * total / len(rises):
        return False
    if len(values) >= _MANY:
        return _order(values) >= _SURE and _order(_without_jump(values)) >= _LIKELY
    return (_fit(points) or 0.0) >= _LINE_OF_FEW


def _order(values: Sequence[float]) -> float:
    """By how much more pairs of values rise than fall, in standard deviations (Mann, Kendall)."""
    stride = -(-len(values) // _MOST_FITTED)
    chosen = values[::stride]
    count = len(chosen)
    score = sum(
        (later > early) - (later < early)
        for place, early in enumerate(chosen)
        for later in chosen[place + 1 :]
    )
    return score / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def _without_jump(values: Sequence[float]) -> list[float]:
    """The values without the one rise that explains most: alone, that is no growth."""
    stride = -(-len(values) // _MOST_FITTED)
    chosen = list(values[::stride])
    best, least, jump = 0, float("inf"), 0.0
    for place in range(1, len(chosen)):
        low, high = median(chosen[:place]), median(chosen[place:])
        error = sum(abs(v - low) for v in chosen[:place]) + sum(
            abs(v - high) for v in chosen[place:]
        )
        if error < least:
            best, least, jump = place, error, high - low
    return chosen[:best] + [value - jump for value in chosen[best:]]


def _slope_of(points: Sequence[Point]) -> float:
    """The median of the slopes between all pairs of points that are far apart (Theil and Sen)."""
    chosen = thinned(points, _MOST_FITTED)
    near = len(chosen) // 4
    slopes = [
        (later.value - early.value) / (later.step - early.step)
        for place, early in enumerate(chosen)
        for later in chosen[place + near + 1 :]
    ]
    return median(slopes)


def _first_of_growth(points: Sequence[Point], start: int, slope: float) -> int:
    """The place from which on the series grows: where a level and a line from it fit best.

    Args:
        start: A place from which on it is known to grow.
    """
    chosen = thinned(points[: start + 1], _MOST_FITTED)
    places = {point.step: place for place, point in enumerate(points)}
    shown = thinned(points, _MOST_POINTS)
    best, least = start, float("inf")
    later = points[start : start + max(1, (len(points) - start) // _SPANS)]
    for hinge in [*chosen, *thinned(later, _MOST_FITTED // 3)]:
        error = _hinge_error(shown, hinge.step, slope)
        if error < least:
            best, least = places[hinge.step], error
    return best


def _hinge_error(points: Sequence[Point], step: int, slope: float) -> float:
    """The mean distance from a level up to a step and a line of this slope from there."""
    level = [p.value - slope * max(0, p.step - step) for p in points]
    middle = median(level)
    return fmean(abs(value - middle) for value in level)


def _fit(points: Sequence[Point]) -> float | None:
    """The share of the variance that a straight line explains."""
    steps = [float(point.step) for point in points]
    values = [point.value for point in points]
    x, y = fmean(steps), fmean(values)
    sxx = sum((step - x) ** 2 for step in steps)
    syy = sum((value - y) ** 2 for value in values)
    if not (sxx and syy):
        return None
    sxy = sum((step - x) * (value - y) for step, value in zip(steps, values, strict=True))
    return min(1.0, sxy * sxy / (sxx * syy))


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many of the points, evenly spread, with the last one."""
    stride = -(-len(points) // most)
    return list(points[::-1][::stride][::-1]) if points else []
