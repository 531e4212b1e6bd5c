"""What is noted of a process on this machine before anything is asked, to see later what changed.

Rules of this file: reads under /proc only, and takes milliseconds.
"""

from __future__ import annotations

import time

from ...linux.host_memory import worker_memory
from ...linux.processors import processor_times


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
