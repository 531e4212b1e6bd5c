"""Runs code again and again at the ends of steps.

Rules of this file: `step_ended` runs in the training thread, and lets it stand still where the code
is due; the code runs in the repetition's own thread. Results wait for the client to fetch them, and
the next run waits for that, too: a slow client gets fewer steps, never an endless heap.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable

from ...errors import EvalCancelled, EvalTimedOut, InternalError, NoStepCame, ProbingError
from ...messages.about.eval import RepeatRequest
from ...messages.common import EVAL_INTERRUPTED, EvalResult
from ..recording.safe_points import Visit
from ..recording.stillness import Training
from .evaluation import GRACE_S, goes_on, outcome_of
from .record import Ended, Outcome
from .run import Code, Moment, Run, Shared

_POLL_S = 0.1

Tell = Callable[[EvalResult | ProbingError | None], bool]
"""Takes what has come, and None at the end; says whether somebody wants more."""


class Repetition:
    """Code that is run at the end of every so many steps.

    Attributes:
        where: Where it runs.
        is_overdue: Whether the time of one run is up and that goes on all the same.
    """

    def __init__(
        self, request: RepeatRequest, limit_s: float, training: Training, shared: Shared, tell: Tell
    ) -> None:
        self._request = request
        self._limit_s = limit_s
        self._training = training
        code = Code(request.code, request.thread, request.frame, assigns=request.assign)
        self._run = Run(code, training, shared)
        self._tell = tell
        self._due: queue.SimpleQueue[Visit] = queue.SimpleQueue()
        self._is_free = True
        self._visit: Visit | None = None  # during which it runs
        self._began = 0.0
        self._steps = 0
        self._why = ""
        self.where: str | None = "safe point"
        self.is_overdue = False

    def step_ended(self) -> bool:
        """See `safe_points.StepEndJob`: runs in the training thread."""
        if self._why:
            return True
        self._steps += 1
        if self._is_free and self._steps >= self._request.every:
            self._is_free, self._steps = False, 0
            self._ask_to_stand_still()
        return False

    def _ask_to_stand_still(self) -> None:
        """The code is due; runs in the training thread, while the code may be ended."""
        self._due.put(self._training.safe_points.request(self._limit_s + 1.0))
        if self._why:  # nobody takes a visit out any more
            self._free_visits()

    def failed(self, reason: str) -> None:
        """See `safe_points.StepEndJob`."""
        self._why = self._why or reason

    def cancel(self, why: str) -> None:
        """Interrupt the code, and do not run it again."""
        self._why = self._why or why
        self._run.is_over = True
        self._run.interrupt(why)

    def place(self) -> str | None:
        """The line that it executes now; None while it waits."""
        return self._run.place()

    def is_late(self) -> bool:
        """Whether a run does not react to being interrupted at its limit."""
        is_running = self._visit is not None and self.place() is not None
        return is_running and time.monotonic() - self._began > self._limit_s + GRACE_S

    def overdue(self) -> EvalTimedOut:
        """The error for a run that is late: from now on it does not hold the training up."""
        self.is_overdue, visit = True, self._visit
        if visit is not None:
            self._training.safe_points.withdraw(visit)
        return goes_on(self._limit_s, self.place())

    def leave_behind(self) -> None:
        """The same, where it was given up a moment ago: nobody is there to be told."""
        if self._visit is not None and self.place() is not None:
            self.overdue()

    def work(self, ended: Ended) -> None:
        """Run the code as often as was asked.

        Args:
            ended: As of an `Evaluation`; told how the last run ended.
        """
        outcome, ran_s = Outcome("not run", runs=0), 0.0
        points = self._training.safe_points
        failure: ProbingError | None = None
        points.begin_job(self)
        try:
            for number in range(1, self._request.times + 1):
                result = self._run_once()
                ran_s += result.duration_s
                last = outcome_of(result, self._run, is_cancelled=bool(self._why))
                outcome = last._replace(ran_s=ran_s, runs=number)
                if not self._tell(result) or result.error_type == EVAL_INTERRUPTED:
                    break
                if self._run.is_vetoed:
                    break
                self._is_free = True
        except BaseException as error:  # noqa: BLE001 - told, whatever it is
            failure = error if isinstance(error, ProbingError) else InternalError(repr(error))
            state = "cancelled" if isinstance(error, EvalCancelled) else "not run"
            outcome = outcome._replace(state=state, error_type=type(error).__name__)
        finally:
            self._why = self._why or "over"
            points.end_job(self)
            self._free_visits()
        try:
            ended(outcome)
        finally:
            if failure is not None:
                self._tell(failure.with_traceback(None))
            self._tell(None)

    def _run_once(self) -> EvalResult:
        """Wait for the step's end, and run the code there.

        Raises:
            NoStepCame: None did in time.
            EvalCancelled: Nobody wants it any more.
        """
        started = time.monotonic()
        visit = self._next_visit(started)
        try:
            while not visit.is_held():
                self._check(started)
                visit.wait_held(_POLL_S)
            waited = time.monotonic() - started
            limit_s, held_id = self._limit_s, visit.thread_id
            moment = Moment("safe point", waited, limit_s, limit_s, held_id=held_id)
            self._visit, self._began = visit, time.monotonic()
            return self._run.execute(moment)
        finally:
            self._visit = None
            self._training.safe_points.withdraw(visit)

    def _next_visit(self, started: float) -> Visit:
        """Wait for the end of the step at which the code is due."""
        while True:
            try:
                return self._due.get(timeout=_POLL_S)
            except queue.Empty:
                self._check(started)

    def _check(self, started: float) -> None:
        """Give up where nobody waits or nothing comes."""
        if self._why:
            raise EvalCancelled(f"it was {self._why}")
        if time.monotonic() - started > self._limit_s:
            raise NoStepCame(self._limit_s)

    def _free_visits(self) -> None:
        """Let the training go on where it came to stand still too late."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._training.safe_points.withdraw(self._due.get_nowait())
