"""What to call one rank, and several.

Rules of this file: pure. A process that has no rank goes by what the user calls it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..job.rank_sets import rank_set

Rank = int | str
"""A rank's number; for a process without one, its name."""


def in_order(ranks: Iterable[Rank]) -> tuple[Rank, ...]:
    """Each once: numbers first, in their order, then names."""
    return tuple(sorted(set(ranks), key=_place))


def rank_words(ranks: Iterable[Rank]) -> str:
    """Them as words of a sentence: ``rank 7``, ``ranks 0-2,5``, ``ranks 0-3 and 4242``."""
    numbers = [rank for rank in in_order(ranks) if isinstance(rank, int)]
    names = [rank for rank in in_order(ranks) if isinstance(rank, str)]
    noun = "rank" if len(numbers) == 1 else "ranks"
    words = [f"{noun} {rank_set(numbers)}"] if numbers else []
    return " and ".join([*words, ", ".join(names)] if names else words)


def _place(rank: Rank) -> tuple[bool, int, str]:
    """A rank's place in the order."""
    return (False, rank, "") if isinstance(rank, int) else (True, 0, rank)
