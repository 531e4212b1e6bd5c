"""Middle and spread that a few wild values do not move.

Rules of this file: pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median, median_low

MAD_TO_SIGMA = 1.4826
"""By what a median absolute deviation is multiplied to estimate a standard deviation."""


def sigma(deviations: Iterable[float]) -> float:
    """The standard deviation that deviations from a middle speak for; 0 for none."""
    sizes = [abs(deviation) for deviation in deviations]
    return MAD_TO_SIGMA * median(sizes) if sizes else 0.0


def lower_middle(values: Sequence[float]) -> float:
    """The median; of two middle values the lower one, so that of two ranks the faster counts."""
    return median_low(values)


def middle(values: Iterable[float]) -> float | None:
    """The median; None of nothing."""
    known = list(values)
    return median(known) if known else None
