"""For how long a process is asked for what its record does not have.

Rules of this file: a clock, and why it says no. Nothing is asked here.
"""

from __future__ import annotations

import time

from ..not_looked_at import LATE, NotLookedAt, NotYet


class LiveTime:
    """The time for live questions, which may be kept back until the record has been judged.

    Attributes:
        wanted: What was kept back first; None where nothing was.
    """

    def __init__(self, live_s: float) -> None:
        """Begin.

        Args:
            live_s: For how long live questions are begun.
        """
        self.wanted: str | None = None
        self.begin(live_s)

    def begin(self, live_s: float, *, late: str = LATE) -> None:
        """Let live questions be asked, for so long from now on.

        Args:
            late: What is said after that.
        """
        self._late, self._end, self._held = late, time.monotonic() + live_s, ""

    def hold(self, why: str) -> None:
        """Keep back all live questions, and forget what was kept back before.

        Args:
            why: What is said where it stays at that.
        """
        self._held, self.wanted = why, None

    def note(self, what: str) -> None:
        """Remember what was kept back, unless something was before."""
        if self._held:
            self.wanted = self.wanted or what

    def need_turn(self) -> None:
        """Make sure that what takes more than the record is not kept back.

        Raises:
            NotYet: The record is judged first.
        """
        self.note("")
        if self._held:
            raise NotYet(self._held)

    def need(self) -> None:
        """Make sure that a live question may be begun.

        Raises:
            NotLookedAt: It may not.
        """
        self.need_turn()
        if time.monotonic() > self._end:
            raise NotLookedAt(self._late)

    @property
    def left_s(self) -> float:
        """For how long live questions are still begun; who asks for that wants to begin one."""
        self.note("")
        return max(0.0, self._end - time.monotonic())
