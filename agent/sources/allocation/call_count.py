"""Counts the calls of Python code in one step, before torch.profiler records each.

Rules of this file: runs in the training thread. torch.profiler needs some 10 microseconds per call
once it ends, with the interpreter lock held, so that what it may record has to be known first. A
program with a profile function of its own keeps it.
"""

from __future__ import annotations

import sys


class CallCount:
    """Counts from `start` on, up to a limit.

    Attributes:
        calls: How many so far.
        is_full: Whether there were more than the limit.
    """

    def __init__(self, limit: int) -> None:
        self.calls = 0
        self.is_full = False
        self._limit = limit
        self._is_on = False

    @staticmethod
    def is_possible() -> bool:
        """Whether the calling thread has no profile function yet."""
        return sys.getprofile() is None

    def start(self) -> None:
        """Count the calls of the calling thread."""
        self._is_on = True
        sys.setprofile(self._count)

    def stop(self) -> None:
        """Count no more; in another thread, the next call there takes the counter away."""
        self._is_on = False
        if sys.getprofile() == self._count:
            sys.setprofile(None)

    def _count(self, _frame: object, event: str, _arg: object) -> None:
        """Called by the interpreter."""
        if event in {"call", "c_call"}:
            self.calls += 1
        if self.calls > self._limit:
            self.is_full = True
            self._is_on = False
        if not self._is_on:
            sys.setprofile(None)
