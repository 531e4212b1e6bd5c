"""What the commands that compare ranks have in common.

Rules of this file: a rank that cannot be asked is part of the answer; the exit code is that of a
failure only where no rank has answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...cluster.job.membership import Member, names_of
from ..output import terminal
from ..target import Target
from .many import membership_of, tell_coverage

if TYPE_CHECKING:
    from ...cluster.job.outcomes import Outcome
    from ...cluster.ranks.question import Asking
    from ...errors import ProbingError


def asking_of(target: Target) -> Asking:
    """The members that a target means, ready to be asked.

    Raises:
        ProbingError: There is none.
    """
    from ...cluster.ranks.question import Asking

    membership = membership_of(target)
    return Asking(members=membership.members, timeout_s=target.limit_s, token=target.token)


def tell_outcomes(outcomes: Sequence[Outcome[Any]]) -> None:
    """Put on stderr why some have told nothing, equal reasons once, and then who answered."""
    for names, error in failures(outcomes):
        terminal.complain(error, endpoint=names)
    tell_coverage(outcomes)


def failures(outcomes: Sequence[Outcome[Any]]) -> list[tuple[str, ProbingError]]:
    """What failed, each error once, after the names of all whom it befell."""
    found: dict[str, tuple[list[Member], ProbingError]] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            found.setdefault(outcome.error.message, ([], outcome.error))[0].append(outcome.member)
    return [(names_of(members), error) for members, error in found.values()]


def exit_code(outcomes: Sequence[Outcome[Any]]) -> int:
    """0 where somebody has answered, else that of the first failure."""
    from ...cluster.job.outcomes import why_nobody

    error = why_nobody(outcomes)
    return 0 if error is None else error.exit_code
