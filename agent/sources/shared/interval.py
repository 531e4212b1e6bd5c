"""How often something may be measured whose cost is known only once it has been.

Rules of this file: arithmetic only; used by the training thread, where it has measured.
"""

from __future__ import annotations

import math
import sys


class Interval:
    """Says in how many steps to measure again, by what the last time has cost."""

    def __init__(self, share: float) -> None:
        """Begin with the first step.

        Args:
            share: The part of a step that it may cost on average.
        """
        self._share = share
        self._every = 1

    def is_common(self, step: int) -> bool:
        """Whether to measure in this step, where that is to be the same on all ranks.

        Each does so at every power of two of steps, so that some are common to all.
        """
        return step % self._every == 0

    def taken(self, cost_ns: float, step_ns: float) -> int:
        """It has been done, in a step of that length.

        Returns:
            In how many steps it may be done again.
        """
        allowed = self._share * step_ns
        wait = max(1, math.ceil(cost_ns / allowed)) if allowed > 0 else sys.maxsize
        self._every = 1 << (wait - 1).bit_length()
        return wait
