"""Finds the one place between two steps at which several ranks apply the same action.

Rules of this file: asks no other rank, and starts no collective: a rank that is not there can hang
nobody. All ranks come by the same ends of steps with the same counts of collectives begun, so "the
third end of a step after the count has reached 500" is one place on all of them, wherever each had
begun to count its own steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Rendezvous:
    """The place of one action, once it has been agreed on."""

    def __init__(self, position: Callable[[], int]) -> None:
        self._position = position
        self._passed: list[int] = []
        self._target: tuple[int, int] | None = None
        self._was_here = False
        self._lock = threading.RLock()  # a signal's handler may come back here

    def is_here(self) -> bool:
        """A step has ended: whether this is the place; in the training thread."""
        with self._lock:
            self._passed.append(self._position())
            if self._target is None:
                return False
            position, more = self._target
            self._was_here |= (is_here := self._count(position) == more + 1)
            return is_here

    def agree(self, position: int, more: int, *, is_undone: bool = False) -> bool:
        """Set the place, so many steps' ends after the first at a position or beyond it.

        It may be set anew, further on, where another rank had come by it, and this one has not.

        Args:
            is_undone: Whether this one may be there: what is to be done has not been.

        Returns:
            Whether this rank has not come by it yet.
        """
        with self._lock:
            if (self._was_here and not is_undone) or self._count(position) > more:
                return False
            self._target, self._was_here = (position, more), False
            return True

    def so_far(self) -> tuple[int, int]:
        """How many steps have ended, and how far the position has moved while they did."""
        with self._lock:
            passed = self._passed
            return len(passed), passed[-1] - passed[0] if passed else 0

    def _count(self, position: int) -> int:
        """How many steps have ended at a position or beyond it."""
        return sum(passed >= position for passed in self._passed)
