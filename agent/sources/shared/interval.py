"""How often something may be measured whose cost is known only once it has been.

Rules of this file: arithmetic only; used by the training thread, once per step.
"""

from __future__ import annotations

import math
import sys


class Interval:
    """Says in which step to measure again, by what the last time has cost."""

    def __init__(self, share: float) -> None:
        """Begin with the first step.

        Args:
            share: The part of a step that it may cost on average.
        """
        self._share = share
        self._left = 0
        self._every = 1

    def is_due(self) -> bool:
        """Whether to measure in this step; to be asked once per step."""
        self._left -= 1
        return self._left < 0

    def is_common(self, step: int) -> bool:
        """The same, in steps that are the same on all ranks as far as each may measure.

        Each does so at every power of two of steps, so that some are common to all.
        """
        return step % self._every == 0

    def taken(self, cost_ns: float, step_ns: float) -> None:
        """It has been done, in a step of that length."""
        allowed = self._share * step_ns
        self._left = math.ceil(cost_ns / allowed) - 1 if allowed > 0 else sys.maxsize
        self._every = 1 << self._left.bit_length() if self._left > 0 else 1
