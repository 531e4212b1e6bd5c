"""Whom a look is at, how long it may take, and whether those may be asked at all.

Rules of this file: the verdict of `hang` comes first, since it says that; and each part of a look
ends, however long those before it have taken.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...cluster.job.membership import names_of
from ...cluster.ranks.question import Asking
from ...units import figure
from ..hang.diagnosis import diagnose_each
from .not_looked_at import LATE
from .ranks.job_rules import times_of

if TYPE_CHECKING:
    from ...cluster.job.members import Member
    from ...cluster.ranks.slow.times import RankTimes
    from ..hang.evidence import Verdict

MOST_MEMBERS = 32
"""Of a larger job so many are looked at one by one; `hang` and `stragglers` look at all."""
_QUESTION = 0.4
"""The part of that which any one question may take."""
_DIAGNOSED_UNTIL, _TIMED_UNTIL, LIVE_UNTIL, RULES_UNTIL, COMPARED_UNTIL = 0.5, 0.55, 0.65, 0.8, 0.95
"""Until when `hang` has judged, ranks have told of their times, the last live question is begun,
all rules have been judged, and ranks have been compared."""
_ALONE = {LIVE_UNTIL: 0.8, RULES_UNTIL: 0.9}
"""Until when that is of one process, which there is none to compare with."""
_LEAST_PART = 0.05


class Clock:
    """The time that a look has: each part of it ends, however long those before have taken."""

    def __init__(self, within_s: float, *, is_alone: bool = False) -> None:
        self._within_s, self._began = within_s, time.monotonic()
        self._parts = _ALONE if is_alone else {}
        self.question_s = _QUESTION * within_s

    def passed_s(self) -> float:
        """How long it has taken until now."""
        return time.monotonic() - self._began

    def left_s(self, until: float) -> float:
        """How long it is until a part of the whole is over."""
        end_s = self._parts.get(until, until) * self._within_s
        return max(_LEAST_PART * self._within_s, end_s - self.passed_s())

    def late(self) -> str:
        """Why something was not judged in time."""
        return f"{LATE}: the look may take {figure(self._within_s, 3)} s"


class How(NamedTuple):
    """How all of them are asked."""

    clock: Clock
    token: str | None
    asked: str
    is_thorough: bool


def diagnosed(members: Sequence[Member], how: How) -> list[Group]:
    """The verdict of `hang` on each job, and what the ranks of one that goes on spend time on."""
    clock = how.clock
    found = diagnose_each(
        members,
        timeout_s=clock.question_s,
        token=how.token,
        asked=how.asked,
        whole_s=clock.left_s(_DIAGNOSED_UNTIL),
    )
    groups = [Group(members, verdict) for members, verdict in found]
    for group in groups:
        group.ask_times(min(clock.question_s, clock.left_s(_TIMED_UNTIL)), how.token)
    return groups


class Group:
    """The processes of one job, or one process without a rank.

    Attributes:
        seen: Those that are there.
        chosen: Those that are looked at one by one.
    """

    def __init__(self, members: Sequence[Member], verdict: Verdict) -> None:
        self.verdict = verdict
        self.seen = [member for member in members if member.state != "missing"]
        self.chosen = _chosen(self.seen, verdict)
        self.times: tuple[RankTimes, ...] = ()

    @property
    def whole(self) -> str:
        """What its findings are of: a job, by its ranks if it has no name, or one process.

        One that is no rank is by itself, whatever else its job has started.
        """
        first = self.seen[0]
        return (first.job if first.rank is not None else None) or names_of(self.seen)

    def ask_times(self, timeout_s: float, token: str | None) -> None:
        """Have the ranks tell of their last steps, before looks at them slow any down."""
        if len(self.seen) > 1 and self.verdict.outcome == "fine":
            asking = Asking(members=tuple(self.seen), timeout_s=timeout_s, token=token)
            self.times = times_of(asking)


def _chosen(members: Sequence[Member], verdict: Verdict) -> list[Member]:
    """Whom to look at one by one: those that the verdict names, and others in their order."""
    named = {cause.rank for cause in verdict.causes}
    ordered = sorted(members, key=lambda m: m.rank not in named if m.rank is not None else True)
    return [member for member in members if member in ordered[:MOST_MEMBERS]]
