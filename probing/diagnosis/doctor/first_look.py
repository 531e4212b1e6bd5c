"""What is noted of a process on this machine before anything is asked, to see later what changed.

Rules of this file: reads under /proc only, and takes milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...linux.host_memory import worker_memory
from ...linux.processors import processor_times

_CROWDED = 25.0
"""Percent of the last ten seconds in which something waited for a processor."""


class Open(NamedTuple):
    """What a descriptor leads to, and whether it can do nothing but write there, as a log's."""

    path: str
    is_written: bool = False


def open_files(pid: int) -> Sequence[Open]:
    """What the descriptors of a process lead to.

    Raises:
        OSError: They cannot be read.
    """
    found = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            mode = entry.stat(follow_symlinks=False).st_mode
            is_written = mode & (stat.S_IRUSR | stat.S_IWUSR) == stat.S_IWUSR
            found.append(Open(os.readlink(entry.path), is_written))
    return found


class FirstLook:
    """A moment.

    Attributes:
        moment_s: When that was, by the monotonic clock.
        processor_times: What each process of the machine had used of the processors.
        workers: What the workers of its loaders had in memory, by number.
        open_files: What its descriptors led to.
    """

    def __init__(self, pid: int | None) -> None:
        """Look.

        Args:
            pid: None for what is elsewhere, or has ended: then there is nothing to see.
        """
        self.moment_s = time.monotonic()
        self.processor_times = {} if pid is None else processor_times()
        self.workers = {} if pid is None else worker_memory(pid)
        self.open_files: Sequence[Open] = ()
        if pid is not None:
            with contextlib.suppress(OSError):
                self.open_files = open_files(pid)


def crowd_here() -> str:
    """That this machine has more to do than it has processors for; empty where it has not."""
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        return f"the machine has {load:.1f} times as much to do as it can" if load > 1.5 else ""
    share = float(text.split("avg10=")[1].split()[0])
    if share < _CROWDED:
        return ""
    return f"others use the machine: for {share:.0f} % of the time something waits for a core"
