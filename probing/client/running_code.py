"""Code that is run in a process, as its operator sees it.

Rules of this file: runs at the operator's side; each method is one request to the agent, and one
more where it must know the limit that is set there; an unsafe eval needs none. Who closes the
iterator of a repeated eval closes the connection, and the agent ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..errors import InternalError
from ..messages import common as wire
from ..messages.about.eval import (
    Appointment,
    CancelRequest,
    CompleteRequest,
    Completions,
    EvalCommit,
    EvalJobs,
    RepeatRequest,
    SessionRequest,
)
from ..messages.limits import DEFAULT_TIMEOUT_S, grace_s
from ..reach.address import Address
from ..reach.transport import open_answer
from .lost import UNSURE_OF_CODE
from .transports import Reached

_LOST = "it can run no code any more"
_LONGEST_S = 86_400.0
_LEFT_S = 2.0
"""So long one waits for a process that one leaves."""


class RunningCode(Reached):
    """What runs code in a process, and looks after what runs."""

    def eval(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        now: bool = False,
        unsafe: bool = False,
        thread: str | None = None,
        frame: int | None = None,
        session: str | None = None,
        assign: bool = False,
        together: Appointment | None = None,
    ) -> wire.EvalResult:
        """Run Python code in it, at a safe point unless `now`.

        Without `timeout_s` the limit is the process's own setting `eval_timeout_s`. Code that fails
        raises nothing here: the result has its traceback as ``error``.

        Args:
            thread: Whose locals it sees, by name or number; None for the training thread.
            frame: Which frame of that thread, 0 being the innermost of the script's.
            session: Evals with the same one share ``_``, the last value, and what they assign; see
                `end_session`.
            assign: Whether what the code assigns goes into the script; else the script's names
                stay as they are, and the result names those that the code has assigned.
            together: Where all ranks of a job run it at one step; see `ranks.eval_together`.
            unsafe: Run it in the thread that holds the interpreter lock for ever, which can harm
                the process; only on this machine. See `probing.attach.injectors.holder`.
        """
        if unsafe:
            from ..attach.unsafe_eval import eval_in_holder

            pid = self._pid_here("an unsafe eval", _LOST)
            return eval_in_holder(pid, code, limit_s=timeout_s or DEFAULT_TIMEOUT_S)
        request = wire.EvalRequest(
            code=code,
            timeout_s=timeout_s,
            now=now,
            thread=thread,
            frame=frame,
            session=session,
            assign=assign,
            together=together,
        )
        limit_s = self._limit_of_code(timeout_s)
        return self._post(
            wire.EvalResult,
            "eval",
            request,
            _LOST,
            timeout_s=limit_s,
            grace_s=grace_s(),
            unsure=UNSURE_OF_CODE,
        )

    def _limit_of_code(self, asked_s: float | None) -> float:
        """How long its agent lets code wait and run, at least.

        Args:
            asked_s: What it is asked for; None for its own setting.
        """
        if asked_s is not None:
            return asked_s
        answer = self._get(wire.SettingsAnswer, "settings", _LOST)
        own = [float(s.value) for s in answer.settings if s.name == "eval_timeout_s"]
        return min(max([self._timeout_s, *own]), _LONGEST_S)

    def commit_eval(self, commit: EvalCommit) -> None:
        """Say where code of an appointment is run, or that it is run by itself."""
        self._post(EvalCommit, "eval_commit", commit, _LOST)

    def eval_steps(
        self,
        code: str,
        *,
        every: int = 1,
        times: int = 1,
        timeout_s: float | None = None,
        thread: str | None = None,
        frame: int | None = None,
        assign: bool = False,
    ) -> Iterator[wire.EvalResult]:
        """Run Python code in it at the end of every so many steps; gives results as they come.

        Args:
            timeout_s: How long each wait for a step, and each run, may take; None as of `eval`.
        """
        request = RepeatRequest(
            code=code,
            every=every,
            times=times,
            timeout_s=timeout_s,
            thread=thread,
            frame=frame,
            assign=assign,
        )
        limit_s = self._limit_of_code(timeout_s)
        with self._transport.asking("it makes no steps any more", limit_s) as address:
            yield from results_of(address, request, limit_s)

    def jobs(self) -> EvalJobs:
        """Its pending and running evals."""
        return self._get(
            EvalJobs, "jobs", "its evals are on record: `query 'FROM python.evals'` has them"
        )

    def cancel(self, number: int) -> EvalJobs:
        """Interrupt a pending or running eval; returns those left."""
        request = CancelRequest(number=number)
        return self._post(EvalJobs, "cancel", request, "it runs no code any more")

    def end_session(self, session: str) -> None:
        """Let the process forget what evals of a session share; else it does after an hour."""
        request = SessionRequest(session=session)
        lost = "it has forgotten it"
        self._post(SessionRequest, "end_session", request, lost, timeout_s=_LEFT_S)

    def complete(self, text: str, *, session: str | None = None) -> Completions:
        """How a line of Python can go on; runs nothing."""
        request = CompleteRequest(text=text, session=session)
        return self._post(Completions, "complete", request, "it has no names any more")


def results_of(
    address: Address, request: RepeatRequest, timeout_s: float
) -> Iterator[wire.EvalResult]:
    """The result of each run.

    Args:
        timeout_s: How long each wait for a step, and each run, may take.

    Raises:
        ProbingError: What ended the repetition before it was done.
    """
    more_s = timeout_s + grace_s()  # a wait and a run
    with open_answer(
        address, "repeat", body=request, timeout_s=timeout_s, grace_s=more_s
    ) as answer:
        while line := answer.read_line():
            yield _result(line)


def _result(line: bytes) -> wire.EvalResult:
    """The result in a line.

    Raises:
        ProbingError: The line is an error.
    """
    try:
        if isinstance(json.loads(line)["error"], dict):
            raise wire.decode_error(line)
        return wire.decode(wire.EvalResult, line)
    except (ValueError, KeyError, TypeError):
        raise InternalError("the agent's answer broke off") from None
