"""How long the operator's side waits, where nobody says how long, and for how much."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated

TimeLimit = Annotated[float, "a time of more than 0 seconds"]
"""How long the answer to a request may take."""
DEFAULT_TIMEOUT_S = 30.0
"""The time limit of a question."""
_GLANCE_S = 0.5
_MOST_GLANCE_S = 4.0
_READY_S = 2.0
_MOST_READY_S = 15.0
_GRACE_S = 5.0
_MOST_GRACE_S = 30.0
_LOOK_S = 1.0
_MOST_LOOK_S = 10.0
_START_S = 10.0
_MOST_START_S = 30.0
EXAMINED_S = 20.0
"""How long all that the doctor looks at takes at the most, where each thread has a processor."""
_MOST_EXAMINED_S = 45.0
WAIT_S = 10.0
"""How long a model's next call is waited for."""
ANSWER_BYTES = 256 << 20
"""What an answer may have at most."""
LARGE_ANSWER_BYTES = 1 << 30
"""What one may have that is made of rows or events without number."""
LEAST_BYTES_PER_S = 1 << 16
"""An answer that takes longer than it was let must come faster than this."""
LEAST_LOCAL_BYTES_PER_S = 16 << 20
"""The same on one machine."""
AGENT_FILES = 16
"""Descriptors that an agent has while nobody asks it anything."""
SPARE_FILES = 64
"""Descriptors that it leaves to the program, whatever the settings say."""


def ready_s(load: float | None = None) -> float:
    """How long a live process may take to say that it can run Python code at all.

    Two seconds, and in proportion longer, up to fifteen, where more wants to run than there are
    processors for: a process that waits for its turn is not one that hangs.

    Args:
        load: How many threads want to run; None for the machine's own figure, now or in the last
            minute, whichever is more.
    """
    return min(_READY_S * _crowding(load), _MOST_READY_S)


def glance_s(load: float | None = None) -> float:
    """How long one process may take to say the same where all of them are asked for a list.

    Half a second, and longer as `ready_s` is, up to four.
    """
    return min(_GLANCE_S * _crowding(load), _MOST_GLANCE_S)


def look_s(load: float | None = None) -> float:
    """How long a look from outside may take that usually takes a few hundredths of a second.

    One second, and longer as `ready_s` is, up to ten.
    """
    return min(_LOOK_S * _crowding(load), _MOST_LOOK_S)


def grace_s(load: float | None = None) -> float:
    """What an answer may take beyond the time limit that the other side keeps itself.

    Five seconds, and longer as `ready_s` is, up to thirty.
    """
    return min(_GRACE_S * _crowding(load), _MOST_GRACE_S)


def start_s(load: float | None = None) -> float:
    """How long an agent that has begun to start may take until it answers.

    Ten seconds, and longer as `ready_s` is, up to thirty.
    """
    return min(_START_S * _crowding(load), _MOST_START_S)


def examined_s(load: float | None = None) -> float:
    """How long all that the doctor looks at may take where nobody says how long.

    Twenty seconds, and longer as `ready_s` is, up to 45: what it does itself, and what it asks,
    take their turns with what else wants to run, and a look that has no time left tells nothing.
    """
    return min(EXAMINED_S * _crowding(load), _MOST_EXAMINED_S)


def _crowding(load: float | None) -> float:
    """How many threads want to run per processor; 1 where each has its own."""
    if load is None:
        load = _load()
    return max(1.0, load / (os.cpu_count() or 1))


def _load() -> float:
    """How many threads want to run now, or did in the last minute; 0 where the kernel is silent."""
    of_minute = now = 0.0
    with contextlib.suppress(OSError):
        of_minute = os.getloadavg()[0]
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open("/proc/loadavg", encoding="ascii") as file,
    ):
        now = float(file.read().split()[3].partition("/")[0])
    return max(of_minute, now)
