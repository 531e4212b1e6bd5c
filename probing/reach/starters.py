"""Which processes have started the ranks of a job, and are none of them.

Rules of this file: pure functions of cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..messages.card import Card


def is_starter(card: Card, others: Iterable[Card]) -> bool:
    """Whether a process has the rank of a launcher, and its children those of a larger group.

    One that trains itself is a rank, and such children are its helpers.
    """
    return (
        card.rank is not None
        and not card.has_trained
        and any(
            card.job in {None, its.job} and size_of(its) > size_of(card) and has_started(card, its)
            for its in others
        )
    )


def has_started(parent: Card, child: Card) -> bool:
    """Whether one is the other's parent, by what both have said of themselves."""
    place = (child.parent, child.pid_namespace)
    return parent.started_ns < child.started_ns and (parent.pid, parent.pid_namespace) == place


def starters_of(card: Card, by_pid: Mapping[tuple[int, int], Iterable[Card]]) -> Iterator[Card]:
    """Who has started a process, who has started that one, and so on, as far as is known.

    Args:
        by_pid: All cards by pid and pid namespace.
    """
    while card.parent is not None:
        older = [
            its
            for its in by_pid.get((card.parent, card.pid_namespace), ())
            if its.started_ns < card.started_ns
        ]
        if not older:
            return
        card = max(older, key=lambda its: its.started_ns)
        yield card


def size_of(card: Card) -> int:
    """How many ranks its job has; 0 where it does not know."""
    return card.world_size or 0
