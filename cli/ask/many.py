"""Commands over many processes: who is meant, and who answered.

Rules of this file: what a command over many says on stderr is said here, the same for all of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..output import terminal
from ..target import FINDING_S, Target

if TYPE_CHECKING:
    from ...cluster.job.members import Membership
    from ...cluster.job.outcomes import Coverage, Outcome

_MOST_NAMED = 8


def membership_of(
    target: Target,
    *,
    states: bool = False,
    job: str | None = None,
    still: Collection[str] = (),
    told: Collection[str] = (),
) -> Membership:
    """The processes that a command is to ask; what was noticed on the way is told on stderr.

    Args:
        states: Also what each of them does.
        job: Only the processes of that job.
        still: The endpoints of processes that are meant, too, though they have ended.
        told: What was told before, and stands.

    Raises:
        ProbingError: There is none; or the command changes what it asks, and one endpoint stands
            for what does not belong together.
    """
    from ...cluster.job.members import find_members

    limit_s = min(FINDING_S, target.limit_s)
    with terminal.waiting_for(f"looking for the processes of {' '.join(target.typed) or 'all'}"):
        membership = find_members(
            target.endpoints,
            token=target.token,
            timeout_s=limit_s,
            states=states,
            job=job,
            still=still,
        )
    if target.changes is not None and membership.mixed:
        raise _refusal(membership, target.changes)
    terminal.note(*(note for note in membership.notes if note not in told))
    return membership


def _refusal(membership: Membership, command: str) -> UsageError:
    """Why a command that changes something does not do so, and how it is asked instead."""
    from ...cluster.job.membership import jobs_among
    from ...messages.rank_paths import of_ranks

    jobs, alone = jobs_among(membership.seen)
    words = [of_ranks(ranks[0].job) for ranks in jobs] + [member.target for member in alone]
    parts = [_count(len(jobs), "job"), _count(len(alone), "process", "processes")]
    belong = f"{' and '.join(filter(None, parts))} that do not belong together"
    others = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    named = ", ".join(map(shlex.quote, words[:_MOST_NAMED])) + others
    return UsageError(
        f"{' and '.join(membership.mixed)} stands for {belong}, and {command} takes one of these at"
        " a time.",
        help=f"Nothing was changed. Name it, as in `probing -t {shlex.quote(words[0])} {command}"
        f" ...`; several each by its own -t. There are {named}.",
    )


def _count(number: int, one: str, more: str | None = None) -> str:
    """So many of something, in words; nothing of none."""
    return f"{number} {one if number == 1 else more or f'{one}s'}" if number else ""


def tell_coverage(outcomes: Sequence[Outcome[Any]]) -> Coverage:
    """Put the errors of those that failed and the footer on stderr."""
    from ...cluster.job.outcomes import Coverage
    from ..render.ranks.coverage import render_coverage

    coverage = Coverage.of(outcomes)
    terminal.tell(render_coverage(coverage))
    return coverage
