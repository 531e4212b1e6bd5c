"""Ctrl-C as the end of a wait: what there is so far is the answer, and said to be a part.

Rules of this file: only what has begun `interruptible` is ended so, and only by the first Ctrl-C;
everywhere else, and by the second, it ends the whole command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...messages.frozen import dataclass


@dataclass(slots=True)
class Interruption:
    """Whether something was cut short.

    Attributes:
        allowed: Whether it may be.
        happened: Whether Ctrl-C ended a wait.
    """

    allowed: bool = True
    happened: bool = False


_open: list[Interruption] = []


@contextlib.contextmanager
def interruptible(*, allowed: bool = True) -> Iterator[Interruption]:
    """Have the first Ctrl-C end the wait within, and not what waits, if that is allowed."""
    one = Interruption(allowed=allowed)
    _open.append(one)
    try:
        yield one
    finally:
        _open.remove(one)


def ends_the_wait() -> bool:
    """Whether a Ctrl-C that a wait has caught is to end that wait alone."""
    if not _open or _open[-1].happened or not _open[-1].allowed:
        return False
    _open[-1].happened = True
    return True
