"""Since when a series of figures is at another level.

Rules of this file: pure functions. A change point is where two medians fit best, by the sum of
absolute deviations (Bai, "Least absolute deviation estimation of a shift", Econometric Theory
11(3), 1995): unlike means, they do not follow single outliers such as checkpoints, evaluations and
first steps. Whether it is a change at all is told by the ranks of the values (Mann and Whitney,
1947), and by how large it is.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...messages.frozen import dataclass

Floats = npt.NDArray[np.float64]

_CANDIDATES = 120
"""So many places are tried, then all around the best of them."""
_LEAST = 8
"""A level is told by at least so many values."""
_SURE = 4.5
"""So many standard deviations the ranks must be apart: one in 100,000 series without a change,
over the places that are tried."""
_MOST_CHANGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A series is at another level since one of its places.

    Attributes:
        place: The first value at the new level.
        before: The median of the level before.
        after: The median since.
    """

    place: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """By how much it has changed; infinite from 0."""
        return self.after / self.before if self.before else math.inf


def last_change(values: Floats, *, least_ratio: float = 1.3) -> Change | None:
    """The last change of level in a series; None where it is at one level, or is too short.

    Args:
        values: Finite ones.
        least_ratio: By how much the levels must differ, upwards or downwards.
    """
    start, found = 0, None
    for _ in range(_MOST_CHANGES):
        change = _change(values[start:], least_ratio)
        if change is None:
            return found
        found = Change(place=start + change.place, before=change.before, after=change.after)
        start = found.place
    return found


def _change(values: Floats, least_ratio: float) -> Change | None:
    """The change that fits best, if it is one."""
    if len(values) < 2 * _LEAST:
        return None
    place = _best_split(values)
    before, after = values[:place], values[place:]
    low, high = float(np.median(before)), float(np.median(after))
    small, large = sorted((abs(low), abs(high)))
    if large < least_ratio * small or large == small:
        return None
    if abs(_rank_difference(before, after)) < _SURE:
        return None
    return Change(place=place, before=low, after=high)


def _best_split(values: Floats) -> int:
    """Where two medians fit best."""
    last = len(values) - _LEAST
    stride = max(1, (last - _LEAST) // _CANDIDATES)
    coarse = min(range(_LEAST, last + 1, stride), key=lambda place: _misfit(values, place))
    near = range(max(_LEAST, coarse - stride), min(last, coarse + stride) + 1)
    return min(near, key=lambda place: _misfit(values, place))


def _misfit(values: Floats, place: int) -> float:
    return _deviation(values[:place]) + _deviation(values[place:])


def _deviation(values: Floats) -> float:
    return float(np.abs(values - _median(values)).sum())


def _median(values: Floats) -> float:
    """That of finite values, which numpy takes five times as long for where they are few."""
    ordered, middle = np.sort(values), len(values) // 2
    if len(values) % 2:
        return float(ordered[middle])
    return float(ordered[middle - 1] + ordered[middle]) / 2


def _rank_difference(before: Floats, after: Floats) -> float:
    """How far apart the ranks of two samples are, in standard deviations; ties share a rank."""
    together = np.concatenate([before, after])
    order = np.sort(together)
    below = np.searchsorted(order, after, side="left")
    upto = np.searchsorted(order, after, side="right")
    first, second, total = len(before), len(after), len(together)
    ranks = float(((below + upto + 1) / 2).sum())
    expected = second * (total + 1) / 2
    _, ties = np.unique(together, return_counts=True)
    correction = float((ties**3 - ties).sum()) / (total * (total - 1))
    variance = first * second / 12 * (total + 1 - correction)
    return (ranks - expected) / math.sqrt(variance) if variance > 0 else 0.0
