"""What is noted of a process on this machine before anything is asked, to see later what changed.

Rules of this file: reads under /proc only, and takes milliseconds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ...linux.host_memory import worker_memory
from ...linux.processors import processor_times

_CROWDED = 25.0
"""Percent of the last ten seconds in which something waited for a processor."""


class FirstLook:
    """A moment.

    Attributes:
        moment_s: When that was, by the monotonic clock.
        processor_times: What each process of the machine had used of the processors.
        workers: What the workers of its loaders had in memory, by number.
    """

    def __init__(self, pid: int | None) -> None:
        """Look.

        Args:
            pid: None for what is elsewhere, or has ended: then there is nothing to see.
        """
        self.moment_s = time.monotonic()
        self.processor_times = {} if pid is None else processor_times()
        self.workers = {} if pid is None else worker_memory(pid)


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
