"""What is told of storages to whoever takes note of them, and how long one look may take.

Rules of this file: touches no tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

from ..saved_tensors import Reach

Head: TypeAlias = "tuple[Any, ...]"
"""The fields of a `Storage` without those of its birth: first its address, device and bytes."""
Birth: TypeAlias = "tuple[int | None, int | None, str | None]"
"""The fields of its birth, the last ones: identity, step and line of the program."""

LONGEST_S = 0.5
_LEAST_S = 0.1
"""What is left for tensors without a purpose where all else has taken its time."""
_LISTING = 0.7
"""The part of the time in which they may be found; the other is for telling of them."""


class Sight(Protocol):
    """Takes note of the storages that are alive.

    Attributes:
        left_out: Those that no bounded look is to tell of, by identity.
    """

    @property
    def left_out(self) -> Collection[int]:
        """See above."""

    def see(self, heads: Sequence[Head], own: Sequence[Any]) -> list[Birth]:
        """Take note of storages, each with torch's own object; returns what is known of each."""

    def leave_out(self, own: Sequence[Any], seen: Collection[int]) -> None:
        """Have storages left out, but for those that were seen, by identity."""


class Limits:
    """How long one look may take, and how much it has left out.

    A program may keep half a million tensors, which have no purpose that is known, and stands still
    while they are looked at: the newest are, as far as there is time.

    Attributes:
        reach: How far to go through graphs of autograd.
        left_out: How many tensors the last look has not told of.
        is_still: Whether all that trains was proven to stand still, and not asked to.
        knows_gradients: Whether the last look could tell gradients from other tensors.
    """

    def __init__(
        self,
        graphs_s: float,
        longest_s: float = LONGEST_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.reach = Reach(graphs_s, clock)
        self.left_out = 0
        self.is_still, self.knows_gradients = False, True
        self._longest_s, self._clock = longest_s, clock
        self._begun = self._listed = 0.0

    def begin(self) -> None:
        """A look begins."""
        self.left_out, self.knows_gradients = 0, True
        self._begun = self._clock()

    def begin_listing(self) -> None:
        """The look has come to the tensors without a purpose.

        To leave many of them out takes about as long as to find them.
        """
        now = self._clock()
        left_s = self._longest_s - 2 * (now - self._begun)
        self._listed = now + _LISTING * max(left_s, min(_LEAST_S, self._longest_s))

    def is_over(self) -> bool:
        """Whether no more tensors are to be listed."""
        return self._clock() >= self._listed
