"""How long the operator's side waits, where nobody says how long, and for how much."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, NamedTuple

TimeLimit = Annotated[float, "a time of more than 0 seconds"]
"""How long the answer to a request may take."""
DEFAULT_TIMEOUT_S = 30.0
"""The time limit of a question."""
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


class Limit(NamedTuple):
    """A time, and in proportion a longer one where more wants to run than there are processors.

    A process that waits for its turn is not one that hangs.

    Attributes:
        usual_s: Where each thread has a processor.
        most_s: However many want one.
    """

    usual_s: float
    most_s: float

    def __call__(self, load: float | None = None) -> float:
        """How long it is.

        Args:
            load: How many threads want to run; None for the machine's own figure, now or in the
                last minute, whichever is more.
        """
        crowding = (_load() if load is None else load) / (os.cpu_count() or 1)
        return min(self.usual_s * max(1.0, crowding), self.most_s)


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


ready_s = Limit(2.0, 15.0)
"""How long a live process may take to say that it can run Python code at all."""
glance_s = Limit(0.5, 4.0)
"""How long one may take to say the same where all of them are asked for a list."""
look_s = Limit(1.0, 10.0)
"""How long a look from outside may take that usually takes a few hundredths of a second."""
grace_s = Limit(5.0, 30.0)
"""What an answer may take beyond the time limit that the other side keeps itself."""
start_s = Limit(10.0, 30.0)
"""How long an agent that has begun to start may take until it answers."""
examined_s = Limit(20.0, 45.0)
"""How long all that the doctor looks at may take where nobody says how long.

What it does itself, and what it asks, take their turns with what else wants to run, and a look that
has no time left tells nothing.
"""
