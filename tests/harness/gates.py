"""Places in a program where a forked child stands until it is killed, however slow the machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def is_killed_at(whose: type, function: str, work: Callable[[], object]) -> bool:
    """Whether a child that does some work came to a method of a class, and was killed there."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:

        def stand(*_: object, **__: object) -> None:
            os.write(writes, b".")
            while True:
                signal.pause()

        try:
            setattr(whose, function, stand)
            work()
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        file.read(1)  # nothing, where it has ended before
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
