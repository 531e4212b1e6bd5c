"""Who has the machine: many tests at once, or one that needs it alone.

Rules of this file: by locks of files, so that it holds between the workers of a run. The locks are
of a process, not of an open file: whoever dies has none, whatever it has forked. Who waits to be
alone is waited for: nobody new comes in before.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold the machine for a test.

    Args:
        folder: Of the run, the same for all of its workers.
        alone: Whether no other test may run meanwhile.
    """
    with (folder / "door").open("a+b") as door, (folder / "room").open("a+b") as room:
        fcntl.lockf(door, fcntl.LOCK_EX)
        fcntl.lockf(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.lockf(door, fcntl.LOCK_UN)
        yield
