"""Who asked a process to end before it ended, and whether that explains the end.

Rules of this file: reads what the agent has left, trusts nothing in it, and any bytes at all give
word of a SIGTERM or none.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from ..linux.foreign_files import read_file
from ..ring.peek import last_step
from ..rundir.folders import ProcessFolder

GRACE_S = 600.0
"""So long after a SIGTERM an end is still what it asked for."""
ASKED = "It was asked to end by a SIGTERM"
"""How the sentence begins that says so."""
CODE = 128 + 15
"""What shells, and programs like them, exit with for SIGTERM."""
WORDS = "signal SIGTERM"
"""How an exit status is told that was one."""
_MAX_BYTES, _MAX_NS = 48, 2**62
_TEXT = re.compile(rb"(\d{1,10}) ([dh])(?: ([ -~]{1,16}))?\n")


class Termination(NamedTuple):
    """The last SIGTERM that a process got.

    Attributes:
        when_ns: When, in nanoseconds since the epoch.
        sender: The pid of who sent it; 0 where that is not of its pid namespace.
        is_handled: Whether a handler of its own took it; else it ended the process.
        name: What the sender called itself, as `bash`; empty where that is not known.
    """

    when_ns: int
    sender: int
    is_handled: bool
    name: str = ""

    @property
    def who(self) -> str:
        """The sender's name, which stands for one process on each machine, else its pid."""
        return self.name or str(self.sender or "")

    @property
    def sentence(self) -> str:
        """It in words."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.when_ns / 1e9))
        named = f" ({self.name})" if self.name else ""
        by = f" of process {self.sender}{named}" if self.sender else ""
        taken = ", which a handler of its own took" if self.is_handled else ""
        return f"{ASKED}{by} at {at}{taken}."


def termination_of(folder: ProcessFolder, ended_ns: int | None) -> Termination | None:
    """The SIGTERM that explains the end of a process; None where none is known.

    Args:
        ended_ns: When it ended, where that is known; else its last step tells until when it ran.
    """
    try:
        found = _TEXT.fullmatch(read_file(folder.terminated, _MAX_BYTES))
        when_ns = min(max(0, folder.terminated.stat().st_mtime_ns), _MAX_NS)
    except OSError:
        return None
    if found is None:
        return None
    ran_ns = ended_ns if ended_ns is not None else _last_ns(folder)
    if ran_ns > when_ns + GRACE_S * 1e9:
        return None
    name = (found[3] or b"").decode("ascii")
    return Termination(when_ns, int(found[1]), found[2] == b"h", name)


def _last_ns(folder: ProcessFolder) -> int:
    """When its last step began."""
    step = last_step(folder)
    return 0 if step is None else step.values.get("start_ns") or 0
