"""Leaves word in the run folder of each SIGTERM that the process gets, and who sent it.

Rules of this file: the C part stands before the default, or before Python's own handler, and does
then what those do: `signal.getsignal` and the exit status are as without us. Without the C part, or
under a handler of other code in C, nothing is told. A handler that the program puts in place later
is stood before at the next look.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from ...ring.native import IN_C


class Terminations:
    """What is told of SIGTERM.

    Args:
        path: The file that tells.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_on = False

    def start(self) -> None:
        """Be told from now on."""
        self._path.unlink(missing_ok=True)  # by an agent that this process had before
        self._is_on = IN_C is not None
        self.look()

    def look(self) -> None:
        """Stand before what handles the signal now."""
        if self._is_on:
            with contextlib.suppress(TypeError, ValueError):  # there are no signals in here
                IN_C.note_sigterm(self._path, callable(signal.getsignal(signal.SIGTERM)))

    def stop(self) -> None:
        """Put back what was there; also right in a forked child."""
        if self._is_on:
            self._is_on = False
            IN_C.forget_sigterm()
