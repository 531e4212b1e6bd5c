"""Has all ranks of a job run the same code at one step, so that it may begin collectives.

Rules of this file: in four rounds, the first ones as in `probing.cluster.job.same_step`. Every rank
gets the code and says where it is; all are told one place ahead of the foremost, or one further on
where a rank has come by it; there the training of each stands still, until all have said that it
does; and only then are they told to begin. Where one cannot say, or they have no place in common in
time, all are told to run it by themselves, which is said in a note; then it may begin no
collective. A rank that is told nothing does so after a while; one that stands still at the place
waits no longer than the limit of the code, and goes on without having run it. While less than a
quarter of that is left it does not say any more that it stands there, and nobody is told to begin:
the word must come to all before one goes on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import EvalCancelled, NotAnswering, ProbingError
from ...messages.about.eval import Appointment, EvalCommit, EvalJob
from ...units import duration
from ..job.outcomes import Outcome, is_passing, look_pause_s
from ..job.parallel import begin_aside
from ..job.places import agree_on_place, first_failure, meeting_place
from ..job.same_step import no_place

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.about.act import Prepared
    from ...messages.common import EvalResult
    from ..job.membership import Member
    from .question import Asking

_ROUND_SHARE = 1 / 6
"""How much of the time limit a rank has for saying where it is, and for hearing of the place."""
_POLL_S = 0.02
_SHARE = 0.5
"""How much of the time limit the way to the place may take, by the last step."""
_HELD_SHARE = 0.75
"""By when all must have said that they stand there: the rest is for the word to begin."""

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
    refused: dict[Member, ProbingError] = {}

    def send(process: Process, member: Member) -> EvalResult:
        try:
            return run(process, member, appointment)
        except ProbingError as error:
            if not is_passing(error):
                refused[member] = error
            raise

    running = begin_aside(
        lambda: asking.ask(send, grace_s=grace_s, is_together=True), name="run together"
    )
    why = _settle(asking, appointment.meeting, limit_s, refused)
    return running(), why


def _settle(
    asking: Asking, meeting: str, limit_s: float, refused: Mapping[Member, ProbingError]
) -> str | None:
    """Have all begin it at one place, or each run it by itself; says why the latter."""
    why = _Rounds(asking, meeting, limit_s, refused).why_apart()
    if why is not None:
        _tell(asking, EvalCommit(meeting=meeting))
    return why


class _Rounds:
    """The rounds of one meeting."""

    def __init__(
        self, asking: Asking, meeting: str, limit_s: float, refused: Mapping[Member, ProbingError]
    ) -> None:
        """Begin.

        Args:
            refused: Why ranks have not taken the code, as it comes.
        """
        self._asking = asking
        self._refused = refused
        self._meeting = meeting
        self._limit_s = limit_s
        self._pause_s = look_pause_s(asking.members, _POLL_S)
        self._began = time.monotonic()

    def why_apart(self) -> str | None:
        """Have all begin it at one place; says why they do not."""
        places, why = self._places()
        if why is not None:
            return why
        spent_s = time.monotonic() - self._began
        position, more = meeting_place(list(places.values()), spent_s)
        if (why := _too_far(places, more, self._limit_s)) is not None:
            return why
        place = EvalCommit(meeting=self._meeting, position=position, more=more, waits=True)
        more, failure = agree_on_place(
            lambda more: self._tell(replace(place, more=more)), more, EvalCancelled
        )
        if failure is not None:
            return failure.message.rstrip(".")
        place = replace(place, more=more)
        why = self._why_not_held(place)
        if why is None:
            self._begin(replace(place, begins=True))
        return why

    def _places(self) -> tuple[dict[Member, Prepared], str | None]:
        """Where all are, and why they have no place in common."""
        patience_s = self._limit_s * _ROUND_SHARE
        jobs = self._asking.ask(
            lambda process, member: self._prepared(process, member, patience_s), is_together=True
        )
        why = _first_reason(jobs)
        found = {o.member: o.value.prepared for o in jobs if o.value is not None}
        places = {member: place for member, place in found.items() if place is not None}
        if why is None and (refused := no_place(places, self._limit_s)) is not None:
            why = refused.message.rstrip(".")
        return places, why

    def _prepared(self, process: Process, member: Member, patience_s: float) -> EvalJob:
        """The eval at a rank, once that knows where it is or that it has no place in common.

        Raises:
            ProbingError: It does not come to that.
        """
        until = time.monotonic() + patience_s
        job = self._look(
            process, member, lambda job: job is not None and job.prepared is not None, until
        )
        if job is None or (job.prepared is None and job.apart is None):
            raise NotAnswering("the rank", patience_s)
        return job

    def _why_not_held(self, place: EvalCommit) -> str | None:
        """Wait until all stand still at the place; says why they do not."""
        until = self._began + self._limit_s * _HELD_SHARE

        def why(process: Process, member: Member) -> str:
            job = self._look(process, member, lambda job: job is None or job.held == place, until)
            if job is None:
                return "it has ended there"
            if job.held == place:
                return ""
            return job.apart or "it has not come to the agreed step in time"

        looks = self._within(until - time.monotonic()).ask(why, is_together=True)
        failure = first_failure(looks)
        if failure is not None:
            return failure.message.rstrip(".")
        return next((f"{o.member.name}: {o.value}" for o in looks if o.value), None)

    def _begin(self, place: EvalCommit) -> None:
        """Tell all to begin, again where the answer is lost; what comes of it is in the results."""
        until = self._began + self._limit_s

        def tell(process: Process, _: Member) -> None:
            while True:
                try:
                    return process.commit_eval(place)
                except ProbingError as error:
                    if not is_passing(error) or time.monotonic() > until:
                        raise
                time.sleep(self._pause_s)

        self._within(until - time.monotonic()).ask(tell, is_together=True)

    def _look(
        self,
        process: Process,
        member: Member,
        is_so: Callable[[EvalJob | None], bool],
        until: float,
    ) -> EvalJob | None:
        """The eval at a rank once it is so, or it is run by itself; what it is at last.

        An answer that is lost says nothing of the rank: it is asked again.

        Raises:
            ProbingError: It does not answer, or has refused the code.
        """
        while True:
            job, lost = None, None
            try:
                jobs = process.jobs().jobs
            except ProbingError as error:
                if not is_passing(error):
                    raise
                lost = error
            else:
                job = next((job for job in jobs if job.meeting == self._meeting), None)
                if is_so(job) or (job is not None and job.apart is not None):
                    return job
            if (refused := self._refused.get(member)) is not None:
                raise refused
            if time.monotonic() >= until:
                if lost is not None:
                    raise lost
                return job
            time.sleep(self._pause_s)

    def _tell(self, commit: EvalCommit) -> tuple[Outcome[Any], ...]:
        """Tell it to all at once: who stands at the place waits for those that hear last."""
        return _tell(self._within(self._limit_s * _ROUND_SHARE), commit)

    def _within(self, limit_s: float) -> Asking:
        """Ask them, and wait no longer than that."""
        return replace(self._asking, timeout_s=min(self._asking.timeout_s, max(limit_s, _POLL_S)))


def _tell(asking: Asking, commit: EvalCommit) -> tuple[Outcome[Any], ...]:
    """Tell it to all at once."""
    return asking.ask(lambda process, _: process.commit_eval(commit), is_together=True)


def _first_reason(jobs: tuple[Outcome[EvalJob], ...]) -> str | None:
    """Why a rank has no place in common with the others."""
    for outcome in jobs:
        if outcome.value is None:
            return f"{outcome.member.name}: {_said(outcome)}"
        if outcome.value.apart is not None:
            return f"{outcome.member.name}: {outcome.value.apart}"
    return None


def _too_far(places: dict[Member, Prepared], more: int, limit_s: float) -> str | None:
    """Why the place would not be reached in time."""
    step_s = max((place.step_s for place in places.values() if place.step_s), default=0.0)
    takes_s = (more + 1) * step_s
    if takes_s <= limit_s * _SHARE:
        return None
    return (
        f"a step takes {duration(step_s)}; --timeout {4 * takes_s:.0f} gives them the time to meet"
    )


def _said(outcome: Outcome[EvalJob]) -> str:
    """What a rank has told in the place of an answer."""
    return outcome.error.message.rstrip(".") if outcome.error is not None else "it is not seen"
