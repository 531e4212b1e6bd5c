"""Has a child end with its parent, also where that is killed and can do nothing about it.

Rules of this file: called in the child, as soon as it is there. The kernel counts the thread that
made the child as its parent: it must live as long as the child is to.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this process get a signal as its parent ends; at once where that has ended by now.

    Args:
        parent: The parent's number, as it was before the child was made.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
