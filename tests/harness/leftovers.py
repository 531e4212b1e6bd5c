"""What a run of the tests has left behind: processes, threads and files in shared memory.

Rules of this file: looks at the machine by what a run can know of itself, a word in the environment
of all that it starts: the path of its own folder. What ends by itself a moment later is waited for.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from pathlib import Path

RUN = "TESTS_RUN"
"""The variable that all processes of a run inherit: its folder."""
_SETTLE_S = 30.0
_SHARED = Path("/dev/shm")


class Leftovers:
    """What was there when a run began, to be compared with what is there when it has ended."""

    def __init__(self) -> None:
        self._files = _names(_SHARED)

    def find(self) -> list[str]:
        """What is left, a line each, once what was about to end has ended."""
        end = time.monotonic() + _SETTLE_S
        while (left := self._look()) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def _look(self) -> list[str]:
        left = [f"process {pid}: {command}" for pid, command in _processes(os.environ[RUN])]
        left += [
            f"thread {thread.name}"
            for thread in threading.enumerate()
            if not thread.daemon and thread is not threading.current_thread()
        ]
        files = _names(_SHARED) - self._files
        return left + [f"{_SHARED / name}" for name in sorted(files - _held() if files else ())]


def _processes(run: str) -> list[tuple[int, str]]:
    """The processes of a run but for this one and those above it."""
    word = f"{RUN}={run}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if pid not in _ancestors() and word in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append((pid, words.decode("utf-8", "replace").strip()))
        except OSError:
            continue
    return found


def _ancestors() -> set[int]:
    """This process and those above it."""
    pid, found = os.getpid(), set[int]()
    while pid:
        found.add(pid)
        try:
            text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        except OSError:
            break
        pid = int(text.rpartition(")")[2].split()[1])
    return found


def _names(folder: Path) -> set[str]:
    """What this user has in a folder."""
    names = set()
    for path in folder.iterdir():
        try:
            if path.stat().st_uid == os.getuid():
                names.add(path.name)
        except OSError:
            continue
    return names


def _held() -> set[str]:
    """What some process has mapped, open or below it in shared memory, of another run perhaps."""
    held: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        places = []
        with contextlib.suppress(OSError, ValueError):
            places.append((folder / "maps").read_text("utf-8"))
            for link in (folder / "cwd", *(folder / "fd").iterdir()):
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    places.append(os.readlink(link))
        held |= set(re.findall(rf"{_SHARED}/([^/\s]+)", "\n".join(places)))
    return held
