"""Why a way into a process is closed."""

from __future__ import annotations


class CannotInject(Exception):
    """One way in does not work for this process; nothing was changed in it.

    Args:
        reason: What stands in the way: a clause that fits behind "because" or a colon.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SwitchedOff(CannotInject):
    """The process was told to let nobody in; this goes for the other ways, too."""


class StillAway(CannotInject):
    """A borrowed thread is not through with what it was sent for, and comes back by itself then."""


class WentOn(CannotInject):
    """A thread was no longer where it had been seen, so that it was let go at once."""
