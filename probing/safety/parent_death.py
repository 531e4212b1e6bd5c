"""Has a child end with its parent, also where that is killed and can do nothing about it.

Rules of this file: called in the child, as soon as it is there; or run there in front of a program,
as ``python -m probing.safety.parent_death PARENT SIGNAL PROGRAM ...``, where the parent has threads
and so nothing of its own may run between a fork and the program. The kernel counts the thread that
made the child as its parent: it must live as long as the child is to.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this process get a signal as its parent ends; at once where that has ended by now.

    Args:
        parent: The parent's number, as it was before the child was made.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def main(argv: Sequence[str]) -> None:
    """Go on as a program, with its arguments, that ends with the parent."""
    parent, number, *program = argv
    end_with_parent(int(parent), int(number))
    os.execv(program[0], program)  # noqa: S606 - a program of ours


if __name__ == "__main__":
    main(sys.argv[1:])
