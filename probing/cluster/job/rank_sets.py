"""Sets of ranks in words, as in ``0-2,5``.

Rules of this file: pure functions, the two of them each other's mirror.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import BadEndpoint

MOST_RANKS = 262_144
_MOST_DIGITS = 18
"""Python refuses to read a number of some thousands."""


def rank_set(ranks: Iterable[int]) -> str:
    """Ranks as runs of neighbours: ``0-2,5``; empty for none."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def ranks_of(text: str) -> tuple[int, ...]:
    """The ranks that a text such as ``0-2,5`` means, in order, each once.

    Raises:
        BadEndpoint: It is no such text.
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        last = high if dash else low
        if not (_is_number(low) and _is_number(last) and int(low) <= int(last)):
            raise BadEndpoint(f"rank:{text}", "ranks are numbers and ranges, as in rank:0-3,7")
        if int(last) - int(low) + len(found) >= MOST_RANKS:
            raise BadEndpoint(f"rank:{text}", f"these are more than {MOST_RANKS:,} ranks")
        found.update(range(int(low), int(last) + 1))
    return tuple(sorted(found))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
