"""What the workers of data loaders have of their own in memory.

Rules of this file: reads under /proc only, one small file of each worker. Pages that a worker has
from its parent count in both of these figures from the fork on, so that neither changes as the
worker writes to them and gets copies; what a worker makes raises them.
"""

from __future__ import annotations

from typing import NamedTuple

from . import process
from .host_memory import WORKER_NAME, descendants


class WorkerMemory(NamedTuple):
    """One worker.

    Attributes:
        anonymous_bytes: What it has in memory that is of no file.
        peak_bytes: The most that it ever had in memory, files and what it shares included.
    """

    anonymous_bytes: int
    peak_bytes: int


def worker_memory(pid: int) -> dict[int, WorkerMemory]:
    """The workers of a process's loaders, by number; none where the kernel does not tell of any."""
    found = {}
    for number in sorted(descendants(pid)):
        status = process.status(number)
        sizes = [_bytes(status.get(name)) for name in ("RssAnon", "VmHWM")]
        if status.get("Name") == WORKER_NAME and None not in sizes:
            found[number] = WorkerMemory(*(size or 0 for size in sizes))
    return found


def _bytes(text: str | None) -> int | None:
    """A size of the file ``status``."""
    return int(text.split()[0]) << 10 if text else None
