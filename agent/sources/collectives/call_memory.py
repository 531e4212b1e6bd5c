"""By how much the memory in use grows within collectives.

Rules of this file: runs in the threads that call. A call is measured when a sample of the memory is
due, and each while somebody watches for a leak: what is not measured costs a look at the clock.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ring.format import NULL_INT
from ..memory.sampler import MemorySampler

_MOST_UNDER_WAY = 256


class CallMemory:
    """What was in use as calls began that are under way.

    Attributes:
        before: By the words of their rows; those that are not measured are not among them.
    """

    def __init__(self, sampler: MemorySampler, watches: Callable[[], bool]) -> None:
        """Begin with none.

        Args:
            watches: Whether somebody watches for a leak.
        """
        self._sampler = sampler
        self._watches = watches
        self.before: dict[int, int] = {}

    def begins(self, word: int, now_ns: int) -> None:
        """A collective is entered."""
        if now_ns > self._sampler.due_ns or self._watches():
            if len(self.before) >= _MOST_UNDER_WAY:  # whose ends were not seen
                self.before.clear()
            self._sampler.sample()
            self.before[word] = self._sampler.bytes

    def growth_of(self, word: int) -> int:
        """It has ended; gives `NULL_INT` where it was not measured."""
        before = self.before.pop(word, NULL_INT)
        if before == NULL_INT:
            return NULL_INT
        self._sampler.sample()
        return self._sampler.bytes - before
