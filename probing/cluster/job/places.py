"""One place for all ranks of a job: where it is, and how all are told of it.

Rules of this file: a place is so many ends of steps after a position. One that lies ahead of the
foremost rank, far enough for the word to reach all; where a rank has come by it before it heard,
all are told one further on: by one slow last step, the first may come too soon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ActRefused, ProbingError, RemoteError
from ...messages.about.act import Prepared
from .membership import Member
from .outcomes import Outcome
from .rank_sets import rank_set

STEP_S = 0.5
"""What a step is taken to last where none has ended yet."""
_MARGIN_S = 0.5
_MARGIN_PER_RANK_S = 0.01
_TRIES = 3
"""How often a place is named in all."""
_FURTHER = 4


def meeting_place(places: Sequence[Prepared], spent_s: float = 0.0) -> tuple[int, int]:
    """A position that no rank has reached, and how many steps later the place is.

    That is as many as pass while the word goes round.

    Args:
        spent_s: How long it took to hear from all ranks: on a busy machine, or over a slow network,
            telling them takes as long.
    """
    position = max(place.position for place in places) + 1
    steps = [place.step_s for place in places if place.step_s is not None]
    margin_s = _MARGIN_S + _MARGIN_PER_RANK_S * len(places) + 2 * spent_s
    return position, math.ceil(margin_s / min(steps, default=STEP_S))


def agree_on_place(
    tell: Callable[[int], Sequence[Outcome[Any]]], more: int, come_by: type[ProbingError]
) -> tuple[int, ProbingError | None]:
    """Tell all the place, and one further on where a rank has come by it.

    Args:
        tell: Tells all that it is so many steps later.
        come_by: What a rank answers that has come by it.

    Returns:
        How many steps later the one is that was named last; and why it is none, None where it is.
    """
    failures = []
    for turn in range(_TRIES):
        more *= _FURTHER if turn else 1
        outcomes = tell(more)
        failure = first_failure(outcomes)
        if failure is None:
            return more, None
        failures.append(failure)
        if not all(o.error is None or o.error.code == come_by.code for o in outcomes):
            break
    return more, failures[0]


def first_failure(outcomes: Sequence[Outcome[Any]]) -> ProbingError | None:
    """The first reason why not all have done it, and which others have not either."""
    failed = [o for o in outcomes if o.error is not None or o.state == "missing"]
    if not failed:
        return None
    first, error = failed[0], failed[0].error
    said = "was not seen" if error is None else error.message.rstrip(".")
    alike = [o.member for o in failed if error is not None and _is_same(o.error, error)]
    name = ranks_of(alike) if len(alike) > 1 else first.member.name
    others = [o.member for o in failed[1:] if o.member not in alike]
    apart = " " if error is None else ": "
    named = said if said.startswith(f"{name} ") else f"{name}{apart}{said}"
    if others:
        named = f"{named}; nor could {ranks_of(others)}"
    return ActRefused(named) if error is None else saying(error, f"{named}.")


def _is_same(one: ProbingError | None, other: ProbingError) -> bool:
    """Whether two ranks have told the same."""
    return one is not None and (one.code, one.message) == (other.code, other.message)


def saying(error: ProbingError, message: str, *, help: str | None = None) -> ProbingError:
    """An error of the same kind, of more than one rank."""
    return RemoteError(
        code=error.code,
        status=error.status,
        exit_code=error.exit_code,
        message=message,
        help=help or error.help,
        detail=error.detail,
    )


def ranks_of(members: Sequence[Member]) -> str:
    """Ranks as a set."""
    ranks = [m.rank for m in members if m.rank is not None]
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_set(ranks)}"
