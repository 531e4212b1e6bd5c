"""The errors of actions."""

from __future__ import annotations

from .root import Refused, TimedOut, UsageError


class ActRefused(Refused):
    """An action cannot be applied as things are."""

    code = "act_refused"
    status = 409
    help = "Nothing was changed."

    def __init__(self, reason: str, *, help: str | None = None) -> None:
        super().__init__(f"{reason}.")
        self.help = help or type(self).help


class ActTimedOut(TimedOut):
    """The training did not reach a step boundary in time; nothing was changed."""

    code = "act_timed_out"
    status = 504
    help = "`probing PID backtrace` shows where the training is; --timeout SECONDS waits longer."

    def __init__(self, limit_s: float, *, ended: int = 0, why: str = "") -> None:
        """Say what was waited for.

        Args:
            ended: How many steps have ended meanwhile.
            why: Why none of them was the one that ranks had agreed on.
        """
        came = "the training did not reach the end of a step"
        if ended:
            came = f"the step that the ranks had agreed on was not among the {ended} that ended"
        reason = f": {why}" if why else ""
        super().__init__(f"{came} within {limit_s:g} s, so nothing was changed{reason}.")


class NoSuchAction(UsageError):
    """No action of that number can be undone."""

    code = "no_such_action"
    help = "`probing PID act list` shows the actions and which of them can be undone."

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}.")
