"""How long the operator's side waits, where nobody says how long, and for how much."""

from __future__ import annotations

import os
from typing import Annotated

TimeLimit = Annotated[float, "a time of more than 0 seconds"]
"""How long the answer to a request may take."""
DEFAULT_TIMEOUT_S = 30.0
"""The time limit of a question."""
_READY_S = 2.0
_MOST_READY_S = 15.0
_GRACE_S = 5.0
_MOST_GRACE_S = 30.0
_START_S = 10.0
_MOST_START_S = 30.0
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
        load: How many threads want to run; None for the machine's own figure of the last minute.
    """
    return min(_READY_S * _crowding(load), _MOST_READY_S)


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


def _crowding(load: float | None) -> float:
    """How many threads want to run per processor; 1 where each has its own."""
    if load is None:
        try:
            load = os.getloadavg()[0]
        except OSError:  # the kernel does not tell
            load = 0.0
    return max(1.0, load / (os.cpu_count() or 1))
