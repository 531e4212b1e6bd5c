"""By how much two runs differ in a figure of their steps, and how sure that is.

Rules of this file: pure, and the same for the same figures. A level is the median of the means of a
few steps in a row each (median of means, Nemirovsky and Yudin, 1983): unlike a mean it follows no
single outlier, such as a pause, and unlike a median of single steps it sees what every second step
has, such as a wait for one of two workers. Its interval is had by resampling stretches of those
means (the moving block bootstrap, Künsch, 1989), for steps that follow each other are alike.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...messages.frozen import dataclass

Floats = npt.NDArray[np.float64]

LEAST_STEPS = 20
"""Of fewer steps nothing is said."""
MOST_STEPS = 1600
_RESAMPLES = 999
_TAIL = 0.5
"""Percent of the resamples on either side of the interval, which has the other 99."""
_STRETCHES = 8
_STUDENT = 3.5 / 2.576
"""So few stretches know little of how much they vary: the quantile of Student's t distribution with
7 degrees of freedom by that of the normal one."""
_IN_A_ROW = ((128, 8), (48, 4), (0, 2))
"""From so many steps on, how many in a row make one mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Two levels, and between what their difference lies.

    Attributes:
        before: The level of the first run.
        after: That of the second.
        low: What the difference, second minus first, is at least.
        high: What it is at most.
        low_ratio: What the second by the first is at least; NaN where the first may be 0.
    """

    before: float
    after: float
    low: float
    high: float
    low_ratio: float
    high_ratio: float

    @property
    def ratio(self) -> float:
        """The second level by the first; NaN where the first is 0."""
        return self.after / self.before if self.before else math.nan

    @property
    def is_different(self) -> bool:
        """Whether no difference at all lies outside of the interval."""
        return self.low > 0 or self.high < 0


def compare(before: Floats, after: Floats) -> Interval:
    """Two levels of figures, one per step, in the order of the steps."""
    first, second = _means(before), _means(after)
    one, two = (_levels(means, seed) for seed, means in enumerate((first, second)))
    levels = float(np.median(first)), float(np.median(second))
    low, high = _interval(two - one, levels[1] - levels[0])
    low_ratio = high_ratio = math.nan
    if (one > 0).all() and (two > 0).all():
        logs = _interval(np.log(two) - np.log(one), math.log(levels[1]) - math.log(levels[0]))
        low_ratio, high_ratio = (math.exp(log) for log in logs)
    return Interval(
        before=levels[0],
        after=levels[1],
        low=low,
        high=high,
        low_ratio=low_ratio,
        high_ratio=high_ratio,
    )


def _interval(resampled: Floats, point: float) -> tuple[float, float]:
    low, high = (float(q) for q in np.percentile(resampled, (_TAIL, 100 - _TAIL)))
    return (
        point - _STUDENT * max(0.0, point - low),
        point + _STUDENT * max(0.0, high - point),
    )


def _means(values: Floats) -> Floats:
    """The means of a few steps in a row, of the newest ones."""
    values = values[-MOST_STEPS:]
    size = next(size for least, size in _IN_A_ROW if len(values) >= least)
    whole = len(values) - len(values) % size
    means: Floats = values[len(values) - whole :].reshape(-1, size).mean(axis=1)
    return means


def _levels(means: Floats, seed: int) -> Floats:
    """The levels of resampled figures."""
    count = len(means)
    length = max(1, count // _STRETCHES)
    drawn = np.random.default_rng(seed)
    starts = drawn.integers(0, count - length + 1, (_RESAMPLES, math.ceil(count / length)))
    places = (starts[:, :, None] + np.arange(length)).reshape(_RESAMPLES, -1)[:, :count]
    levels: Floats = np.median(means[places], axis=1)
    return levels
