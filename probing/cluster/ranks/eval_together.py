"""Has all ranks of a job run the same code at one step, so that it may begin collectives.

Rules of this file: in three rounds, as `probing.cluster.job.same_step`. Every rank gets the code
and says where it is; then all are told one place ahead of the foremost, and run it there. Where one
cannot say, or they have no place in common in time, all are told to run it by themselves, which is
said in a note; then it may begin no collective. A rank that is told nothing does so after a while.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ...errors import NotAnswering
from ...messages.about.eval import Appointment, EvalCommit, EvalJob
from ...units import duration
from ..job.outcomes import Outcome
from ..job.same_step import meeting_place

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.about.act import Prepared
    from ...messages.common import EvalResult
    from ..job.membership import Member
    from .question import Asking

_PREPARING_SHARE = 1 / 6
"""How much of the time limit a rank has for saying where it is."""
_POLL_S = 0.02
_SHARE = 0.5
"""How much of the time limit the way to the place may take, by the last step."""

Run = Callable[["Process", "Member", "Appointment | None"], "EvalResult"]


def can_meet(asking: Asking) -> bool:
    """Whether these are all ranks of one job, as far as their cards tell."""
    members = asking.members
    is_whole = all(m.state == "seen" and m.world_size == len(members) for m in members)
    return len(members) > 1 and is_whole and len({m.rank for m in members}) == len(members)


def run_together(
    asking: Asking, run: Run, *, limit_s: float, grace_s: float
) -> tuple[tuple[Outcome[EvalResult], ...], str | None]:
    """The outcome at each rank, and why they have not run it at one step; None where they have.

    Args:
        run: Sends the code to one of them.
        limit_s: How long it may wait and run.
    """
    appointment = Appointment(meeting=secrets.token_hex(8), ranks=len(asking.members))
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(
            asking.ask,
            lambda process, member: run(process, member, appointment),
            grace_s=grace_s,
            is_together=True,
        )
        why = _settle(asking, appointment.meeting, limit_s)
        return running.result(), why


def _settle(asking: Asking, meeting: str, limit_s: float) -> str | None:
    """Tell all where they run it, or that each does by itself; says why the latter."""
    jobs = asking.ask(
        lambda process, _: _prepared(process, meeting, limit_s * _PREPARING_SHARE), is_together=True
    )
    why, places = _first_reason(jobs), [o.value.prepared for o in jobs if o.value is not None]
    if why is None:
        position, more = meeting_place([place for place in places if place is not None])
        why = _too_far(places, more, limit_s)
    if why is None:
        told = _tell(asking, EvalCommit(meeting=meeting, position=position, more=more))
        why = next((f"{o.member.name}: {_said(o)}" for o in told if o.state != "answered"), None)
    if why is not None:
        _tell(asking, EvalCommit(meeting=meeting))
    return why


def _tell(asking: Asking, commit: EvalCommit) -> tuple[Outcome[bool], ...]:
    """Tell it to all at once."""

    def tell(process: Process, _: Member) -> bool:
        process.commit_eval(commit)
        return True

    return asking.ask(tell, is_together=True)


def _prepared(process: Process, meeting: str, patience_s: float) -> EvalJob:
    """The eval at a rank, once that knows where it is or that it has no place in common.

    Raises:
        NotAnswering: It does not come to that.
    """
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        for job in process.jobs().jobs:
            if job.meeting == meeting and (job.prepared is not None or job.apart is not None):
                return job
        time.sleep(_POLL_S)
    raise NotAnswering("the rank", patience_s)


def _first_reason(jobs: tuple[Outcome[EvalJob], ...]) -> str | None:
    """Why a rank has no place in common with the others."""
    for outcome in jobs:
        if outcome.value is None:
            return f"{outcome.member.name}: {_said(outcome)}"
        if outcome.value.apart is not None:
            return f"{outcome.member.name}: {outcome.value.apart}"
    return None


def _too_far(places: list[Prepared | None], more: int, limit_s: float) -> str | None:
    """Why the place would not be reached in time."""
    step_s = max((p.step_s for p in places if p is not None and p.step_s), default=0.0)
    takes_s = (more + 1) * step_s
    if takes_s <= limit_s * _SHARE:
        return None
    return (
        f"a step takes {duration(step_s)}; --timeout {4 * takes_s:.0f} gives them the time to meet"
    )


def _said(outcome: Outcome[EvalJob] | Outcome[bool]) -> str:
    """What a rank has told in the place of an answer."""
    return outcome.error.message.rstrip(".") if outcome.error is not None else "it is not seen"
