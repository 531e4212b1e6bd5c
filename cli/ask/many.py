"""Commands over many processes: who is meant, and who answered.

Rules of this file: what a command over many says on stderr is said here, the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..output import terminal
from ..target import FINDING_S, Target

if TYPE_CHECKING:
    from ...cluster.job.members import Membership
    from ...cluster.job.outcomes import Coverage, Outcome


def membership_of(target: Target, *, states: bool = False) -> Membership:
    """The processes that a command is to ask; what was noticed on the way is told on stderr.

    Args:
        states: Also what each of them does.

    Raises:
        ProbingError: There is none.
    """
    from ...cluster.job.members import find_members

    limit_s = min(FINDING_S, target.limit_s)
    with terminal.waiting_for(f"looking for the processes of {' '.join(target.typed) or 'all'}"):
        membership = find_members(
            target.endpoints, token=target.token, timeout_s=limit_s, states=states
        )
    for note in membership.notes:
        terminal.note(note)
    return membership


def tell_coverage(outcomes: Sequence[Outcome[Any]]) -> Coverage:
    """Put the errors of those that failed and the footer on stderr."""
    from ...cluster.job.outcomes import Coverage
    from ..render.ranks.coverage import render_coverage

    coverage = Coverage.of(outcomes)
    terminal.tell(render_coverage(coverage))
    return coverage
