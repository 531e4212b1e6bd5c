"""One piece of code on its way from request to result.

Rules of this file: each piece of code runs in a thread of its own. While training makes
progress it runs only when the training thread stands still at a safe point, because autograd
replaces gradients without the interpreter lock and a reader in another thread crashes the job.
When the training thread has made no progress for a second, the code runs at once, and the way
back into the training is closed until it is done. Whatever it raises is its result.
"""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ...errors import EvalCancelled, EvalTimedOut
from ...messages.about.eval import EvalCommit, EvalJob
from ...messages.common import EVAL_INTERRUPTED, EvalRequest, EvalResult
from ..agent_threads import pending
from ..recording.safe_points import Visit
from ..recording.stillness import Stillness, Training
from .record import Ended, Outcome
from .run import Code, Moment, Run, Shared

if TYPE_CHECKING:
    from ..sources.actions.moments.meeting import Meeting

_POLL_S = 0.05
GRACE_S = 1.5
"""How long code that has been interrupted may take to end before it is left behind."""
_PATIENCE_SHARE = 1 / 4
"""How much of the time limit who asked has for telling the place of an appointment."""
_HELD_SHARE = 3 / 4
"""Until when one says that it is held there: the word to begin must come before one gives up."""


class Evaluation:
    """One piece of code that is run once.

    Attributes:
        future: Gets the `EvalResult`, or the error of code that never got to run.
        limit_s: Its time limit, waiting included.
        is_overdue: Whether its time is up and it goes on all the same.
        where: As of an `EvalResult`; None while it waits.
    """

    def __init__(
        self, request: EvalRequest, limit_s: float, training: Training, shared: Shared
    ) -> None:
        self.future: Future[EvalResult] = pending()
        self.limit_s = limit_s
        self.is_overdue = False
        self.where: str | None = None
        self._now = request.now
        self._training = training
        code = Code(request.code, request.thread, request.frame, request.session, request.assign)
        self._run = Run(code, training, shared)
        self._started = time.monotonic()
        self._why = ""
        self._visit: Visit | None = None
        self._together = request.together
        self._meeting: Meeting | None = None
        self._is_together = False

    def work(self, ended: Ended) -> None:
        """Wait for the right moment, run the code, set the result.

        Args:
            ended: Told how it ended, and that before whoever has asked: he may look at once.
        """
        safe_points = self._training.safe_points
        failure: BaseException | None = None
        try:
            visit = self._visit = self._meet() or safe_points.request(self.limit_s + 1.0)
            self.where = self._wait(visit)
            waited = time.monotonic() - self._started
            left_s = self.limit_s - waited
            moment = Moment(
                self.where, waited, self.limit_s, left_s, self._is_together, visit.thread_id
            )
            result = self._execute(moment, visit)
            outcome = outcome_of(result, self._run, is_cancelled=bool(self._why))
        except BaseException as error:  # noqa: BLE001 - the result, whatever it is
            state = "cancelled" if isinstance(error, EvalCancelled) else "not run"
            outcome, failure = Outcome(state, type(error).__name__), error
        finally:
            if self._visit is not None:
                safe_points.withdraw(self._visit)
        try:
            ended(outcome)
        finally:
            if failure is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(failure)

    def _execute(self, moment: Moment, visit: Visit) -> EvalResult:
        """Run the code, and see what the next step makes of a rate that it has set."""
        if not visit.is_held():
            return self._run.execute(moment)
        from ..sources.actions.rate_watch import watch_rates

        rates = watch_rates(self._training)
        result = self._run.execute(moment)
        if rates is None:
            return result
        rates.look_again()
        self._training.safe_points.withdraw(visit)
        notes = rates.told(self._started + self.limit_s - time.monotonic())
        return dataclasses.replace(result, notes=notes)

    def meets(self, meeting: str) -> bool:
        """Whether it waits for other ranks at an appointment."""
        return self._together is not None and self._together.meeting == meeting

    def settle(self, commit: EvalCommit) -> None:
        """Take the place where it is run, or the word that it begins there.

        Raises:
            EvalCancelled: The training has come by it already, or does not stand there.
        """
        meeting, position = self._meeting, commit.position
        if position is None:
            self._together = None
        if meeting is None or position is None:
            if meeting is not None:
                meeting.go_apart("it was told to run it by itself")
        elif commit.begins:
            if not meeting.begin(commit):
                raise EvalCancelled("this rank is not held at the agreed step")
        elif not meeting.agree(commit, position):
            raise EvalCancelled("this rank has come by the agreed step already")

    def told(self, job: EvalJob) -> EvalJob:
        """A job with what it says of its appointment."""
        together, meeting = self._together, self._meeting
        if together is None:
            return job
        if meeting is None:
            return dataclasses.replace(job, meeting=together.meeting)
        waited_s = time.monotonic() - self._started
        return dataclasses.replace(
            job,
            meeting=together.meeting,
            prepared=meeting.prepared(job.number) if meeting.apart is None else None,
            apart=meeting.apart,
            held=meeting.held if waited_s < self.limit_s * _HELD_SHARE else None,
        )

    def _meet(self) -> Visit | None:
        """Come to the place where all ranks run it; None where it is run by itself.

        Raises:
            EvalTimedOut: The training has not come there.
            EvalCancelled: Nobody wants it any more.
        """
        together = self._together  # which a commit takes away at any moment
        if together is None:
            return None
        from ..recording.training import TorchTraining
        from ..sources.actions.moments.meeting import Meeting

        training = self._training
        if not (isinstance(training, TorchTraining) and training.is_recording()):
            return None
        meeting = self._meeting = Meeting(training, together.ranks, self.limit_s + 1.0)
        try:
            while not meeting.settled.is_set():
                self._check_meeting(meeting)
                meeting.settled.wait(_POLL_S)
        finally:
            meeting.leave()
            self._visit = meeting.visit
        self._is_together = meeting.has_begun
        return meeting.visit

    def _check_meeting(self, meeting: Meeting) -> None:
        """Give up where nobody waits, or nothing comes; not once the code may begin."""
        waited_s, was_held = time.monotonic() - self._started, meeting.held is not None
        if self._why and meeting.leave():
            raise EvalCancelled(f"it was {self._why}")
        if waited_s > self.limit_s and meeting.leave():
            raise EvalTimedOut(_not_together(self.limit_s, was_held=was_held))
        if waited_s > self.limit_s * _PATIENCE_SHARE and not meeting.has_agreed:
            meeting.go_apart("it was not told in time at which step")

    def cancel(self, why: str) -> None:
        """Interrupt the code, or do not run it at all."""
        self._why = self._why or why
        self._run.is_over = True
        self._run.interrupt(why)

    def place(self) -> str | None:
        """The line that it executes now; None while it waits."""
        return self._run.place()

    def overdue(self) -> EvalTimedOut:
        """The error for code that runs on and does not react to being interrupted.

        From now on it does not hold the training up, nor close its way back, however long it runs.
        """
        self.is_overdue = True
        if self._visit is not None:
            self._training.safe_points.withdraw(self._visit)
        return goes_on(self.limit_s, self.place())

    def leave_behind(self) -> None:
        """The same, where it was given up a moment ago: nobody is there to be told."""
        if not self.future.done() and self.place() is not None:
            self.overdue()

    def _wait(self, visit: Visit) -> str:
        """Wait for a safe point, or for proof that the training thread is stuck.

        Returns:
            Where the code may run.

        Raises:
            EvalTimedOut: Neither came in time.
            EvalCancelled: Nobody wants it any more.
        """
        stillness = Stillness(self._training)
        while True:
            if self._why:
                raise EvalCancelled(f"it was {self._why}")
            if visit.is_held():
                return "safe point"
            if self._now:
                visit.close_way_back()
                return "agent thread"
            if stillness.closes_way(visit):
                return "agent thread"
            if time.monotonic() - self._started > self.limit_s:
                raise EvalTimedOut(
                    f"the training did not reach a safe point within {self.limit_s:g} s and is not"
                    " provably stuck, so the code was not run. --now runs it without a safe point,"
                    " which can crash the training."
                )
            visit.wait_held(_POLL_S)


def _not_together(limit_s: float, *, was_held: bool) -> str:
    """Why code was not run that all ranks were to run at one step."""
    if was_held:
        return (
            "the training was held at the step that the ranks had agreed on, and no word came that"
            f" all were within {limit_s:g} s, so the code was not run and the training goes on."
        )
    return (
        f"the training did not come within {limit_s:g} s to the step that the ranks had agreed on,"
        " so the code was not run."
    )


def goes_on(limit_s: float, place: str | None) -> EvalTimedOut:
    """What is told of code that is left behind at some place."""
    at = f" It is at {place}." if place else ""
    return EvalTimedOut(
        f"the code has run for {limit_s:g} s and cannot be interrupted where it is; it"
        f" goes on in the background, and so does the training.{at} `probing PID jobs` lists"
        " it until it ends."
    )


def outcome_of(result: EvalResult, run: Run, *, is_cancelled: bool) -> Outcome:
    """How a run has ended, as python.evals has it."""
    state = "raised" if result.error_type else "done"
    if result.error_type == EVAL_INTERRUPTED:
        state = "cancelled" if is_cancelled else "interrupted"
    elif run.is_vetoed:
        state = "vetoed"
    return Outcome(
        state,
        error_type=result.error_type,
        step=result.step,
        is_held=result.where == "safe point",
        waited_s=result.waited_s,
        ran_s=result.duration_s,
    )
