"""Leaves word in the run folder of how the process exits: who called `sys.exit`, with what code.

And of each SIGTERM that it gets, and who sent it.

Rules of this file: the C part tells of all, and without it nothing is told. `sys.exit` does what
it did, and shows no frame of ours. As in `exception_record`, nothing is imported and no class made
while the process ends. On a SIGTERM the C part stands before the default, or before Python's own
handler, and does then what those do: `signal.getsignal` and the exit status are as without us.
Under a handler of other code in C nothing is told. A handler that the program puts in place later
is stood before at the next look.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections import deque
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import Any

from ...messages.codec import with_checksum
from ...ring.native import IN_C
from ...rundir.folders import write_private
from ..state import Agent

_MOST_CALLS, _MOST_FRAMES = 4, 32
_MAX_MESSAGE = 300


class Exits:
    """Stands before `sys.exit` while the agent is there, and asks for the exit code at the end.

    Args:
        agent: Knows the run folder and the step in progress.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._calls: deque[dict[str, Any]] = deque(maxlen=_MOST_CALLS)
        self._original: Any = None
        self._own: Any = None

    def start(self) -> None:
        """Be told of calls; one of a program's own in its place is left as it is."""
        folder, found = self._agent.folder, sys.exit
        for left in (folder.exit_calls, folder.exit_code):
            left.unlink(missing_ok=True)  # by an agent that this process had before
        is_pythons = type(found) is BuiltinFunctionType and found.__self__ is sys
        if IN_C is not None and is_pythons:
            self._original = found
            self._own = IN_C.told_exit(sys, found, self._called)
            sys.exit = self._own

    def stop(self) -> None:
        """Put Python's own back; ours does what that does, wherever it was kept."""
        if self._own is None:
            return
        IN_C.forget_exit()
        if sys.exit is self._own:
            sys.exit = self._original
        self._own = None

    def is_covered(self) -> bool:
        """Whether the program has put a function of its own over ours."""
        return self._own is not None and sys.exit is not self._own

    def end(self) -> None:
        """The process ends: leave word of the calls, and ask for the code."""
        if IN_C is None:
            return
        folder, step = self._agent.folder, self._agent.training.step()
        calls = [call for call in self._calls if call["step"] == step]
        if calls:
            write_private(folder.exit_calls, with_checksum(json.dumps({"calls": calls}).encode()))
        with contextlib.suppress(OSError):  # this C library tells nobody
            IN_C.tell_exit_code(folder.exit_code)

    def _called(self, status: object = None, /) -> None:
        """`sys.exit` is called; one that ends a thread ends nothing else."""
        if threading.get_ident() != threading.main_thread().ident:
            return
        code, message = _meaning(status)
        self._calls.append(
            {
                "code": code,
                "message": message,
                "step": self._agent.training.step(),
                "frames": _frames(sys._getframe(1)),  # noqa: SLF001 - the caller of `sys.exit`
            }
        )


def _meaning(status: object) -> tuple[int, str | None]:
    """The exit code of a status as Python reads it, and what it prints; calls nothing of it."""
    if status is None:
        return 0, None
    if isinstance(status, int):
        return int.__and__(status, 0xFF), None
    return 1, status[:_MAX_MESSAGE] if type(status) is str else f"a {type(status).__name__}"


def _frames(frame: FrameType | None) -> list[dict[str, Any]]:
    """Where the call came from, the innermost frame first."""
    found: list[dict[str, Any]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # 3.11 and newer know the class
        found.append({"func": name, "file": code.co_filename, "lineno": frame.f_lineno or 0})
        frame = frame.f_back
    return found


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
