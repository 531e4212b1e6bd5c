"""The errors of `fit`."""

from __future__ import annotations

from .root import Refused, TimedOut


class FitRefused(Refused):
    """The memory of a training cannot be predicted as things are."""

    code = "fit_refused"
    status = 409
    help = (
        "`--from-measured` scales what a step was measured to take; `probing PID summary` shows the"
        " model."
    )

    def __init__(self, why: str, *, help: str | None = None) -> None:
        super().__init__(f"the memory cannot be predicted: {why}.", help=help)


class FitTimedOut(TimedOut):
    """The training showed no whole step in time, or the prediction took too long."""

    code = "fit_timed_out"
    status = 504
    help = "--timeout SECONDS gives it more time; the training goes on in any case."

    def __init__(self, why: str, *, help: str | None = None) -> None:
        super().__init__(f"the memory was not predicted: {why}.", help=help)
