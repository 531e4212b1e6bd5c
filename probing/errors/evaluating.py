"""The errors of `eval`, its prompt and its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from .root import Refused, TimedOut, UsageError


class NoSuchThread(UsageError):
    """The process has no thread of that name or number."""

    code = "no_such_thread"
    help = "`probing PID backtrace` shows the threads of the process."

    def __init__(self, wanted: str, there: Sequence[str]) -> None:
        super().__init__(
            f"the process has no thread {wanted!r}.", help=f"Its threads: {', '.join(there)}."
        )


class NoSuchFrame(UsageError):
    """The thread has no frame of that number."""

    code = "no_such_frame"
    help = (
        "`probing PID backtrace` shows the frames of each thread; --frame counts the script's own."
    )

    def __init__(self, wanted: int, thread: str, there: Sequence[str]) -> None:
        shown = f"Its frames: {', '.join(there)}." if there else "It has none of the script's."
        super().__init__(f"{thread} has no frame {wanted} of the script's.", help=shown)


class NoSuchJob(UsageError):
    """No eval of that number is pending or running."""

    code = "no_such_job"
    help = "`probing PID jobs` lists those that are; python.evals has all that were."

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no pending or running eval {number}.")


class EvalCancelled(Refused):
    """Code was not run, because it was cancelled before its turn came."""

    code = "eval_cancelled"
    help = "`probing PID jobs` shows pending and running evals; python.evals keeps all."
    status = 409

    def __init__(self, why: str) -> None:
        super().__init__(f"the code was not run: {why}.")


class NoStepCame(TimedOut):
    """An eval is repeated at the ends of steps, and none came."""

    code = "no_step_came"
    status = 504
    help = "`probing PID backtrace` shows where the training is; --timeout SECONDS waits longer."

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"the training did not reach the end of a step within {limit_s:g} s.")


class EvalTimedOut(TimedOut):
    """Code sent by eval ran into its time limit."""

    code = "eval_timed_out"

    def __init__(self, message: str) -> None:
        super().__init__(message)
