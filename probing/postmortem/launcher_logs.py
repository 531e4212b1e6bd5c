"""What a launcher has written of how its ranks ended, which nobody else can ask once it has.

Rules of this file: reads a file that others have written, trusts nothing in it, and any bytes at
all give an end or none. It counts only if it is of the user whose run folder names it, and was
written to after the agent's start; of all of it only numbers are told. Lines count that name the
very process; those of srun name ranks, which a job before may have had, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..linux.process import signal_words
from ..messages.card import Card
from ..rundir.folders import ProcessFolder
from .error_files import written_since_start

_TORCHRUN = r"exitcode\s*: (?P<code>-?\d{{1,3}})(?:\) local_rank: \d+)? \(pid: {pid}\)"
_MPIRUN = r"process rank \d+ with PID {pid} on node \S+ exited on signal (?P<signal>\d{{1,3}})\b"
_PATTERNS = (_TORCHRUN, _MPIRUN)


class LauncherWord(NamedTuple):
    """How a process has ended, as its launcher has written.

    Attributes:
        code: As Python has it: the number of a signal is negative.
        path: Where that stands.
    """

    code: int
    path: str

    @property
    def words(self) -> str:
        """``exit code 3`` or ``signal SIGKILL``."""
        return signal_words(-self.code) if self.code < 0 else f"exit code {self.code}"


def launcher_word(folder: ProcessFolder, card: Card | None) -> LauncherWord | None:
    """What the launcher of a process has written of its end; None where it has not."""
    if card is None or not card.launcher_log:
        return None
    code = parse(written_since_start(folder, card, card.launcher_log) or b"", card.pid)
    return LauncherWord(code, card.launcher_log) if code is not None else None


def parse(data: bytes, pid: int) -> int | None:
    """The exit code that a log has of a process: the last, as numbers come again."""
    text = data.decode("utf-8", "replace")
    found = [
        (match.start(), int(code) if (code := match.groupdict().get("code")) else -int(match[1]))
        for pattern in _PATTERNS
        for match in re.finditer(pattern.format(pid=pid), text)
    ]
    return max(found)[1] if found else None
