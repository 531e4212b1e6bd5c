"""Commands over many processes: who is meant, and who answered.

Rules of this file: what a command over many says on stderr is said here, the same for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ProbingError
from .. import terminal

if TYPE_CHECKING:
    from ...cluster.job.asking import Coverage, Outcome
    from ...cluster.job.members import Membership
    from ..target import Target

_FINDING_S = 5.0


def membership_of(target: Target, *, states: bool = False) -> Membership:
    """The processes that a command is to ask; what was noticed on the way is told on stderr.

    Args:
        states: Also what each of them does.

    Raises:
        ProbingError: There is none.
    """
    from ...cluster.job.members import find_members

    limit_s = min(_FINDING_S, target.limit_s)
    membership = find_members(
        target.endpoints, token=target.token, timeout_s=limit_s, states=states
    )
    for note in membership.notes:
        terminal.note(note)
    return membership


def stands_for_many(target: Target, word: str) -> bool:
    """Whether an endpoint of a target can be several processes.

    At host:port there may be a node server, and only it can tell.
    """
    from ...cluster.job.plans import is_address, names_many

    if not is_address(word):
        return names_many(word)
    return _is_node_server(word, target.token, min(_FINDING_S, target.limit_s))


@functools.cache
def _is_node_server(address: str, token: str | None, timeout_s: float) -> bool:
    """Whether a node server listens at an address; asked once."""
    from ...cluster.job.providers.addresses import members_at
    from ...rundir.folders import from_env

    try:
        members = members_at(address, from_env(), token=token, timeout_s=timeout_s)
    except ProbingError:  # the command will meet it again, and tell
        return False
    return any(member.via is not None for member in members)


def tell_coverage(outcomes: Sequence[Outcome[Any]]) -> Coverage:
    """Put the errors of those that failed and the footer on stderr."""
    from ...cluster.job.asking import Coverage
    from ..render.coverage import render_coverage

    coverage = Coverage.of(outcomes)
    terminal.tell(render_coverage(coverage))
    return coverage
