"""How the ranks of a job are doing, as far as this machine sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...errors import ProbingError
from ...messages.frozen import dataclass

if TYPE_CHECKING:
    from ...client.base import Process
    from ...cluster.job.membership import Member
    from ...messages.card import Card

_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStates:
    """The ranks of a job by what they do.

    Attributes:
        expected: How many the job was started with.
        by_state: The ranks in each state, the commonest state first.
        steps: The lowest and the highest step they are in; None where none is known.
    """

    expected: int | None
    by_state: tuple[tuple[str, tuple[int, ...]], ...]
    steps: tuple[int, int] | None


def ranks_of(process: Process, card: Card) -> RankStates | None:
    """The ranks of a process's job; None where it has no others, or they cannot be looked for."""
    if process.folder is None or (card.world_size or 1) < 2 or not card.job:
        return None
    from ...cluster.job.members import find_members

    try:
        found = find_members([f"job:{card.job}"], timeout_s=_LIMIT_S, states=True)
    except ProbingError:
        return None
    return rank_states([m for m in found.members if m.rank is not None], card.world_size)


def rank_states(members: Sequence[Member], expected: int | None) -> RankStates:
    """Members by what they do."""
    states: dict[str, list[int]] = {}
    for member in members:
        if member.rank is not None:
            states.setdefault(state_of(member), []).append(member.rank)
    ordered = sorted(states.items(), key=lambda pair: (-len(pair[1]), pair[1]))
    return RankStates(
        expected=expected,
        by_state=tuple((state, tuple(ranks)) for state, ranks in ordered),
        steps=_range(member.step for member in members),
    )


def state_of(member: Member) -> str:
    """What a member does, in a word."""
    if member.state == "missing":
        return "missing"
    return member.state_word or ("dead" if member.is_alive is False else "seen")


def _range(steps: Iterable[int | None]) -> tuple[int, int] | None:
    known = [step for step in steps if step is not None]
    return (min(known), max(known)) if known else None
