"""Which processes have started the ranks of a job, and are none of them.

Rules of this file: pure functions of cards.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..messages.card import Card


def is_starter(card: Card, others: Iterable[Card]) -> bool:
    """Whether a process has the rank of a launcher, and its children those of a larger group."""
    return card.rank is not None and any(
        card.job in {None, its.job} and size_of(its) > size_of(card) and has_started(card, its)
        for its in others
    )


def has_started(parent: Card, child: Card) -> bool:
    """Whether one is the other's parent, by what both have said of themselves."""
    place = (child.parent, child.pid_namespace)
    return parent.started_ns < child.started_ns and (parent.pid, parent.pid_namespace) == place


def size_of(card: Card) -> int:
    """How many ranks its job has; 0 where it does not know."""
    return card.world_size or 0
