"""Takes code that was sent, and keeps account of what is pending and running.

Rules of this file: starts the threads that evals run in, as many at once as the settings allow, and
ends them when the agent goes. Every eval is written down before it begins, see `eval_record`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ...errors import BadRequest, Busy, NoSuchJob, NoThread, RequestTooLarge
from ...messages.about.eval import MOST_TIMES, EvalCommit, EvalJob, EvalJobs, RepeatRequest
from ...messages.common import EvalRequest
from ...safety.this_thread import thread_name
from ..agent_threads import start_thread
from ..audit.request_log import Sender
from ..recording.safe_points import AGENT_THREAD_PREFIX
from ..state import Agent
from .evaluation import Evaluation
from .record import EvalRecord, Outcome
from .repetition import Repetition, Tell
from .run import TIMER_THREAD, Shared

_END_S = 2.0
"""How long interrupted code is waited for when the agent goes."""
_LONGEST_S = 86_400.0
_MOST_CHARS = 200
_THREADS = frozenset({f"{AGENT_THREAD_PREFIX}eval", TIMER_THREAD})

W = TypeVar("W", Evaluation, Repetition)


class _InHand(NamedTuple):
    """An eval that has begun and not ended."""

    work: Evaluation | Repetition
    sender: Sender
    code: str
    since: float


class Evaluator:
    """Takes requests and hands back what will have their results."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._shared = Shared(agent.settings)
        self._record = EvalRecord(agent)
        self._in_hand: dict[int, _InHand] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Interrupt what runs, and wait a little for its end."""
        with self._lock:
            in_hand = list(self._in_hand.values())
        for one in in_hand:
            one.work.cancel("ended because the agent leaves")
        end = time.monotonic() + _END_S
        for thread in threading.enumerate():  # one may have told its result, and not ended yet
            if thread_name(thread) in _THREADS and thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        self._record.close()

    def submit(self, request: EvalRequest, sender: Sender) -> Evaluation:
        """Run code once.

        Raises:
            RequestTooLarge: The code is too long.
            Busy: As many evals are pending as may be.
        """
        limit = self._limit(request.timeout_s)
        return self._begin(
            lambda: Evaluation(request, limit, self._agent.training, self._shared),
            request.code,
            sender,
        )

    def repeat(self, request: RepeatRequest, sender: Sender, tell: Tell) -> Repetition:
        """Run code at the end of every so many steps.

        Raises:
            BadRequest: So often it cannot be run.
            RequestTooLarge: The code is too long.
            Busy: As many evals are pending as may be.
        """
        if not (request.every >= 1 and 1 <= request.times <= MOST_TIMES):
            raise BadRequest(f"an eval is repeated from 1 to {MOST_TIMES} times, every 1 or more")
        limit = self._limit(request.timeout_s)
        return self._begin(
            lambda: Repetition(request, limit, self._agent.training, self._shared, tell),
            request.code,
            sender,
        )

    def jobs(self) -> EvalJobs:
        """The pending and running evals."""
        with self._lock:
            in_hand = sorted(self._in_hand.items())
        return EvalJobs(jobs=tuple([_job(number, one) for number, one in in_hand]))

    def cancel(self, number: int, sender: Sender) -> None:
        """Interrupt an eval, or do not run it at all.

        Raises:
            NoSuchJob: It is neither pending nor running.
        """
        with self._lock:
            one = self._in_hand.get(number)
        if one is None:
            raise NoSuchJob(number)
        one.work.cancel(f"cancelled by {sender}")

    def commit(self, commit: EvalCommit) -> None:
        """Say where code is run that waits for other ranks.

        Raises:
            BadRequest: None does for these.
            EvalCancelled: The training has come by that place already.
        """
        with self._lock:
            works = [one.work for one in self._in_hand.values()]
        for work in works:
            if isinstance(work, Evaluation) and work.meets(commit.meeting):
                work.settle(commit)
                return
        raise BadRequest("no eval waits for that appointment")

    def last_value(self, session: str | None) -> dict[str, object]:
        """What ``_`` stands for in a prompt, and what code has assigned."""
        found = self._shared.sessions.get(session) if session is not None else None
        own = {**found.names, **found.last} if found is not None else {}
        return {**self._shared.names, **own}

    def end_session(self, session: str) -> None:
        """Forget a prompt: its last value, and what it has assigned."""
        self._shared.sessions.pop(session, None)

    def forget_unused(self) -> None:
        """Forget prompts that nobody has come back to."""
        self._shared.forget_unused(time.monotonic())

    def _limit(self, asked_s: float | None) -> float:
        """A time limit: the one asked for, or that of the settings."""
        return min(asked_s or self._agent.settings.eval_timeout_s, _LONGEST_S)

    def _begin(self, make: Callable[[], W], code: str, sender: Sender) -> W:
        """Give an eval its number and its thread."""
        settings = self._shared.settings = self._agent.settings
        if len(code.encode("utf-8", "surrogatepass")) > settings.max_code_bytes:
            raise RequestTooLarge("the code", settings.max_code_bytes, "PROBING_MAX_CODE_BYTES")
        with self._lock:
            if len(self._in_hand) >= settings.eval_max_running:
                raise Busy("evals", settings.eval_max_running)
            number, work = self._record.next_number(), make()
            self._in_hand[number] = _InHand(work, sender, code, time.monotonic())
        try:
            start_thread("eval", self._work, number, work, sender, code)
        except NoThread:
            with self._lock:
                del self._in_hand[number]
            raise
        return work

    def _work(self, number: int, work: Evaluation | Repetition, sender: Sender, code: str) -> None:
        """The body of an eval's thread."""
        word = self._record.begin(number, sender, code)

        def end(outcome: Outcome) -> None:
            self._record.end(word, outcome)
            with self._lock:
                self._in_hand.pop(number, None)

        work.work(end)


def _job(number: int, one: _InHand) -> EvalJob:
    """What a client is told of a pending or running eval."""
    place = one.work.place()
    job = _job_of(number, one, place)
    return one.work.told(job) if isinstance(one.work, Evaluation) else job


def _job_of(number: int, one: _InHand, place: str | None) -> EvalJob:
    """The same, of any kind."""
    state = "left behind" if one.work.is_overdue else ("running" if place else "waiting")
    return EvalJob(
        number=number,
        who=str(one.sender),
        code=one.code[:_MOST_CHARS],
        state=state,
        age_s=time.monotonic() - one.since,
        place=place,
        where=one.work.where if place else None,
    )
