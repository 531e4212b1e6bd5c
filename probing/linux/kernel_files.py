"""Reads the small files in which the kernel tells of processes.

Rules of this file: a file that is not there, or may not be read, is empty; no file is held open.
What is read out of the memory of another process may be held up by that process for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(limit_s: float, read: Callable[[], T], otherwise: T) -> T:
    """What a function returns, or something else where it takes too long, or fails.

    It is run in a thread of its own, which is left behind then: where a page of memory is that of a
    file in a file system of his, or of one that is gone, the kernel itself waits for it.
    """
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(read()), daemon=True)
    thread.start()
    thread.join(limit_s)
    return found[0] if found else otherwise


def read_text(path: str) -> str:
    """A small file; nothing when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def sizes_in(text: str) -> dict[str, int]:
    """The lines that say so many kB, such as those of ``/proc/meminfo``, in bytes."""
    words = [line.split() for line in text.splitlines()]
    return {w[0].rstrip(":"): int(w[1]) << 10 for w in words if len(w) == 3 and w[2] == "kB"}
