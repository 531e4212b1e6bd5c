"""Runs the same code on all ranks of a job.

Rules of this file: each rank runs it at a safe point of its own, as soon as it comes to one. What
must happen at the same step on all ranks, such as a change of the learning rate, does not belong
here: it needs an appointment, as `gather_facts` makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..job.asking import Outcome
from .naming import Rank
from .sent_code import Code

if TYPE_CHECKING:
    from ..client import Process
    from ..job.members import Member
    from ..wire import EvalResult
    from .gathering import Asking

_GRACE_S = 5.0


def gather_results(
    asking: Asking,
    code: Code,
    *,
    limit_s: float | None = None,
    connect: Callable[[str], Process] | None = None,
) -> tuple[dict[Rank, EvalResult], tuple[Outcome[EvalResult], ...]]:
    """What the code came to on every member that ran it.

    Args:
        limit_s: How long it may wait and run; None for each process's own setting.
        connect: Another way to the process at an endpoint, such as one that attaches first.
    """

    def run(process: Process, member: Member) -> EvalResult:
        there = process if connect is None else connect(member.endpoint)
        return there.eval(
            code.text,
            timeout_s=limit_s,
            now=code.now,
            unsafe=code.unsafe,
            thread=code.thread,
            frame=code.frame,
            assign=code.assign,
        )

    outcomes = asking.ask(run, grace_s=_GRACE_S)
    names = asking.names
    found = {names[o.member]: o.value for o in outcomes if o.value is not None}
    return found, outcomes
