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
from .sent_code import Code

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.about.eval import Appointment
    from ...messages.common import EvalResult
    from ..job.members import Member
    from .question import Asking

_GRACE_S = 5.0


def gather_results(
    asking: Asking,
    code: Code,
    *,
    limit_s: float | None = None,
    connect: Callable[[str], Process] | None = None,
) -> tuple[dict[Rank, EvalResult], tuple[Outcome[EvalResult], ...], str | None]:
    """What the code came to on every member that ran it, and why not at one step of all.

    Args:
        limit_s: How long it may wait and run; None for each process's own setting.
        connect: Another way to the process at an endpoint, such as one that attaches first.
    """

    def run(process: Process, member: Member, together: Appointment | None = None) -> EvalResult:
        there = process if connect is None else connect(member.endpoint)
        return there.eval(
            code.text,
            timeout_s=limit_s,
            now=code.now,
            unsafe=code.unsafe,
            thread=code.thread,
            frame=code.frame,
            assign=code.assign,
            together=together,
        )

    why = None
    if connect is None and not (code.now or code.unsafe) and can_meet(asking):
        limit = limit_s or DEFAULT_TIMEOUT_S
        outcomes, why = run_together(asking, run, limit_s=limit, grace_s=_GRACE_S)
    else:
        outcomes = asking.ask(run, grace_s=_GRACE_S)
    names = asking.names
    found = {names[o.member]: o.value for o in outcomes if o.value is not None}
    return found, outcomes, why
