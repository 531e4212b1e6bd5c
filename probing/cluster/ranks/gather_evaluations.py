"""Runs the same code on all ranks of a job.

Rules of this file: all ranks of one job run it at one step, where they have one in common; else
each at a safe point of its own, as soon as it comes to one, and by itself: see `eval_together`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...messages.limits import DEFAULT_TIMEOUT_S
from ..job.outcomes import Outcome
from .eval_together import can_meet, run_together
from .naming import Rank

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.about.eval import Appointment
    from ...messages.common import EvalResult
    from ..job.members import Member
    from .question import Asking

_GRACE_S = 5.0
_LONGEST_S = 86_400.0
"""What each process says itself is waited for, where nobody says how long."""


def gather_results(
    asking: Asking,
    run: Callable[[Process, Appointment | None], EvalResult],
    *,
    may_meet: bool,
    limit_s: float | None = None,
    connect: Callable[[str], Process] | None = None,
) -> tuple[dict[Rank, EvalResult], tuple[Outcome[EvalResult], ...], str | None]:
    """What the code came to on every member that ran it, and why not at one step of all.

    Args:
        run: Runs it in one process, at one step with the others or by itself.
        may_meet: Whether it waits for a step.
        limit_s: How long it may wait and run; None for each process's own setting.
        connect: Another way to the process at an endpoint, such as one that attaches first.
    """

    def at(process: Process, member: Member, together: Appointment | None = None) -> EvalResult:
        return run(process if connect is None else connect(member.endpoint), together)

    why, grace_s = None, _LONGEST_S if limit_s is None else _GRACE_S
    if connect is None and may_meet and can_meet(asking):
        limit = limit_s or DEFAULT_TIMEOUT_S
        outcomes, why = run_together(asking, at, limit_s=limit, grace_s=grace_s)
    else:
        outcomes = asking.ask(at, grace_s=grace_s)
    names = asking.names
    found = {names[o.member]: o.value for o in outcomes if o.value is not None}
    return found, outcomes, why
