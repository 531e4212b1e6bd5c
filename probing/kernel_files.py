"""Reads the small files in which the kernel tells of processes.

Rules of this file: a file that is not there, or may not be read, is empty; no file is held open.
"""

from __future__ import annotations


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
