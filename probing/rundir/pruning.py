"""Which records of ended processes are given up, and what is told of those that were.

Rules of this file: a record is evidence; so before any goes for want of room, all give back what
they have reserved and never written. Of one that went, a line stays in the run directory: who asks
for it is told when it went, and why.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from ..arguments import shown_command
from ..errors import BadSetting
from ..linux.foreign_files import read_file
from ..messages.frozen import dataclass
from ..settings import Settings
from .folders import ProcessFolder, RunDirectory, scan
from .unwritten import give_back

_FILE = "given_up"
_MOST_BYTES = 1 << 18
_LONGEST_COMMAND = 200
_TOO_OLD = "it was older than PROBING_KEEP_HOURS"
_TOO_MUCH = "the records of ended processes took more than PROBING_KEEP_MIB"


@dataclass(frozen=True)
class GivenUp:
    """A record that is there no more.

    Attributes:
        at_s: When it was given up, in seconds since the epoch.
        command: What its process ran.
        why: The reason, as part of a sentence.
    """

    pid: int
    at_s: float
    command: str
    why: str

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at_s))
        return f"the record of process {self.pid} ({self.command}) was given up at {at}: {self.why}"


def prune(directory: RunDirectory, *, keep_hours: float, keep_bytes: int) -> list[ProcessFolder]:
    """Remove records of ended processes: the too old, then the oldest over the quota.

    Several agents may do so at once. A folder of another boot or pid namespace is judged by age
    alone, as is one whose card is not there yet, and left alone as long as its process may be
    alive: age does not tell that, for the files of a process that hangs do not change.
    """
    now, removed, total = time.time(), [], 0
    for folder in directory.folders():
        if folder.is_alive():
            continue
        is_ours = folder.read_card() is not None and not folder.is_foreign()
        size, changed = _weigh(folder.path)
        is_old = now - changed > keep_hours * 3600
        if is_ours and not is_old and not folder.may_live():
            shrink(folder)
            size, _ = _weigh(folder.path)
        total += size
        is_over = is_ours and total > keep_bytes
        if (is_old or is_over) and not folder.may_live():
            _note(directory, folder, _TOO_OLD if is_old else _TOO_MUCH)
            shutil.rmtree(folder.path, ignore_errors=True)
            removed.append(folder)
    return removed


def overdue(folders: Iterable[ProcessFolder]) -> list[ProcessFolder]:
    """Those of ended processes that are kept for no longer by PROBING_KEEP_HOURS of this process.

    They are there still, as nothing has pruned since.
    """
    words = {name: word for name, word in os.environ.items() if name == "PROBING_KEEP_HOURS"}
    keep = Settings()
    with contextlib.suppress(BadSetting):  # whoever prunes is told of it; these can be looked at
        keep = Settings.from_env(words)
    oldest = time.time() - keep.keep_hours * 3600
    return [
        folder
        for folder in folders
        if not folder.is_alive() and _weigh(folder.path)[1] < oldest and not folder.may_live()
    ]


def shrink(folder: ProcessFolder) -> None:
    """Give back what the rings of an ended process have not used."""
    for ring in folder.path.glob("*.ring"):
        with contextlib.suppress(OSError):
            give_back(ring)


def given_up(directory: RunDirectory) -> list[GivenUp]:
    """The records that were given up, the last of them first."""
    found: list[GivenUp] = []
    for place in directory.each():
        with contextlib.suppress(OSError):
            lines = read_file(place.path / _FILE, 2 * _MOST_BYTES).decode("utf-8", "replace")
            found += [one for line in lines.splitlines() if (one := _read(line)) is not None]
    return sorted(found, key=lambda one: one.at_s, reverse=True)


def _note(directory: RunDirectory, folder: ProcessFolder, why: str) -> None:
    """Leave word of a record that goes; where that cannot be written, it goes all the same."""
    card = folder.read_card()
    command = shown_command(card.command)[:_LONGEST_COMMAND] if card is not None else "unknown"
    line = json.dumps([folder.pid, time.time(), command, why])
    path = directory.path / _FILE
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            path.unlink()
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)


def _read(line: str) -> GivenUp | None:
    """One line of the file; None where it makes no sense."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        pid, at_s, command, why = json.loads(line)
        return GivenUp(int(pid), float(at_s), str(command), str(why))
    return None


def _weigh(path: Path) -> tuple[int, float]:
    """How many bytes a folder's files take, and when one last changed in seconds since the epoch.

    A folder without any may be in the making: what counts is when it was made.
    """
    infos = [info for _, info in scan(path)]
    if not infos:
        with contextlib.suppress(OSError):
            return 0, path.lstat().st_mtime
    changed = max((info.st_mtime for info in infos), default=0.0)
    return sum(info.st_blocks for info in infos) * 512, changed
