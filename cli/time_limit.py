"""The time limit of a command as a whole: asking, computing and writing; no drawing of a table.

Rules of this file: one alarm of the kernel's, which raises in the main thread whatever that is
doing. What a command waits for by itself has a limit of its own that is no longer than this one; so
the alarm is for what nobody else ends, such as an answer without an end.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

from ..errors import QueryTimedOut

_AGAIN_S = 1.0
"""How soon the alarm comes again, should something have swallowed its error."""
_AT_ONCE_S = 1e-3
_rung: list[float] = []


def is_over() -> bool:
    """Whether an alarm came: then whatever was interrupted, such as an import, is half done."""
    return bool(_rung)


@contextlib.contextmanager
def within(limit_s: float, *, grace_s: float, of: str = "") -> Iterator[None]:
    """Have what is done here end by then; to be entered by the main thread.

    Args:
        grace_s: How long beyond its limit it may take to say itself that it has ended.
        of: What is asked, where that is not plain.

    Raises:
        QueryTimedOut: It takes longer.
    """

    def ring(_: int, __: FrameType | None) -> None:
        _rung.append(limit_s)
        # Silent, and in C: the alarm cannot come again in it. Where the error could not be raised,
        # the next alarm raises it again.
        sys.unraisablehook = bool
        raise QueryTimedOut(limit_s, of=of)

    before, hook = signal.signal(signal.SIGALRM, ring), sys.unraisablehook
    signal.setitimer(signal.ITIMER_REAL, limit_s + grace_s, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook


@contextlib.contextmanager
def held_back(*, is_counted: bool) -> Iterator[None]:
    """Let the alarm wait until this is done, so that it is done whole.

    Args:
        is_counted: Whether it takes of the time there is.
    """
    left_s, again_s = signal.setitimer(signal.ITIMER_REAL, 0)
    started = time.monotonic()
    try:
        yield
    finally:
        if left_s:
            taken_s = time.monotonic() - started if is_counted else 0.0
            signal.setitimer(signal.ITIMER_REAL, max(_AT_ONCE_S, left_s - taken_s), again_s)
