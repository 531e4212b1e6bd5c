"""Asks the ranks of a job for what the rest of this package compares.

Rules of this file: all ranks are asked at once, and one that fails is an outcome. Nothing but what
is needed is moved: the last rows, the columns that are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...messages.frozen import dataclass
from ..job.outcomes import AT_ONCE, Outcome, ask_all
from .naming import Rank
from .stack_classes import RankStacks

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import Backtrace
    from ..job.members import Member

SNAPSHOT_GAP_S = 1.0
"""How long between two looks at the same stacks."""
_SOURCES = {
    "crash": "its stack is the one it died with",
    "open rows": "it has ended",
    "proc": "only the kernel tells of it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Whom to ask, and how long an answer may take.

    Attributes:
        members: All of a job, the missing ones among them.
    """

    members: tuple[Member, ...]
    timeout_s: float
    token: str | None = None

    def ask(
        self,
        question: Callable[[Process, Member], Any],
        *,
        grace_s: float = 0.0,
        is_together: bool = False,
    ) -> tuple[Outcome[Any], ...]:
        """The outcome of a question at each member.

        Args:
            grace_s: How long to wait beyond the limit, for questions that keep it themselves.
            is_together: Whether nobody may wait until others have answered.
        """
        return ask_all(
            self.members,
            question,
            timeout_s=self.timeout_s,
            token=self.token,
            deadline_s=self.timeout_s + grace_s,
            at_once=max(AT_ONCE, len(self.members)) if is_together else AT_ONCE,
        )

    @property
    def names(self) -> Mapping[Member, Rank]:
        """What each member is called: its rank, where that names one process only."""
        jobs = {member.job for member in self.members if member.rank is not None}
        return {member: _name(member, has_jobs=len(jobs) > 1) for member in self.members}


def why_not(outcome: Outcome[Any]) -> str:
    """Why a member has told nothing, in a clause."""
    if outcome.error is not None:
        return outcome.error.message
    return "it was expected and is not seen"


def gather_stacks(
    asking: Asking,
    *,
    looks: int = 1,
    native: bool = False,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[tuple[RankStacks, ...], tuple[Outcome[Backtrace], ...]]:
    """The stacks of every member at some moments, and the outcomes of the last one.

    Args:
        looks: At how many moments, a second apart.
        wait: How to let time pass.
    """
    rounds: list[tuple[Outcome[Backtrace], ...]] = []
    for number in range(looks):
        begun = time.monotonic()
        rounds.append(asking.ask(lambda process, _: process.backtrace(native=native)))
        if number + 1 < looks:
            wait(max(0.0, SNAPSHOT_GAP_S - (time.monotonic() - begun)))
    names = asking.names
    found = [
        _stacks_of(names[member], [outcomes[place] for outcomes in rounds])
        for place, member in enumerate(asking.members)
    ]
    return tuple(found), rounds[-1]


def _stacks_of(rank: Rank, outcomes: Sequence[Outcome[Backtrace]]) -> RankStacks:
    """What was seen of one member."""
    traces = tuple(outcome.value for outcome in outcomes if outcome.value is not None)
    if not traces:
        return RankStacks(rank=rank, why=why_not(outcomes[-1]))
    said = [*outcomes[-1].notes, traces[-1].note, _SOURCES.get(traces[-1].source)]
    return RankStacks(rank=rank, looks=traces, why="; ".join(filter(None, said)) or None)


def _name(member: Member, *, has_jobs: bool) -> Rank:
    if member.rank is None:
        return member.name
    return f"{member.job or 'no job'}:{member.rank}" if has_jobs else member.rank
