"""Evals with a short time limit, on a machine that may let a training do nothing for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import probing
from probing.errors import NoStepCame, ProbingError
from probing.messages.common import EVAL_INTERRUPTED, EvalResult
from tests.harness.targets import DEADLINE_S, wait_until

T = TypeVar("T")

SAFE_POINT = "safe point"
NOT_RUN = "so the code was not run"
"""What the error says of code whose limit went by while it waited for the training."""


def answer_of_run(ask: Callable[[], T]) -> T:
    """Ask until code was run: what that gives or raises.

    A limit counts the wait for a safe point, too. Where a training that is not let run leaves
    nothing of it, or less than half, what is said of the code is not what it has earned.
    """
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            answer = ask()
        except ProbingError as error:
            is_of_run = error.code != NoStepCame.code and NOT_RUN not in error.message
            if is_of_run or time.monotonic() > end:
                raise
        else:
            if not _was_hurried(answer) or time.monotonic() > end:
                return answer


def answer_at_safe_point(ask: Callable[[], EvalResult]) -> EvalResult:
    """Ask until the training was held: one that is let do nothing for a second is run beside."""

    def held() -> EvalResult | None:
        answer = ask()
        return answer if answer.where == SAFE_POINT else None

    return wait_until(held, "an eval at a safe point")


@contextmanager
def patience(job: probing.Process, grace_s: float = DEADLINE_S) -> Iterator[None]:
    """Leave no code behind before: a busy machine interrupts late.

    Args:
        grace_s: How long code that is interrupted may take to end.
    """
    place = "import probing.agent.handlers as handlers"
    usual = job.eval(f"{place}; handlers.GRACE_S", timeout_s=DEADLINE_S).value
    job.eval(f"{place}; handlers.GRACE_S = {grace_s}", timeout_s=DEADLINE_S)
    try:
        yield
    finally:
        job.eval(f"{place}; handlers.GRACE_S = {usual}", timeout_s=DEADLINE_S)


def _was_hurried(answer: object) -> bool:
    """Whether code was interrupted that had waited longer than it ran."""
    if not isinstance(answer, EvalResult):
        return False
    return answer.error_type == EVAL_INTERRUPTED and answer.duration_s < answer.waited_s
