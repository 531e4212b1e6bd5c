"""What a rule says where it cannot be judged.

Rules of this file: no more than that, so that facts and rules may both say it.
"""

from __future__ import annotations

from ...attach.preflight import find_obstacle
from ...errors import NotProbed, ProbingError

LATE = "no time was left"
"""How the message begins where there was none."""
ENDED = "the process has ended"
"""How the message begins where it needs one that runs."""
NOT_THOROUGH = "a watch waits for no step of the training"
"""Why a rule that takes time is left to a single look."""


def why_not(error: ProbingError) -> str:
    """An error as the end of a sentence; of a process that wants an agent, how it gets one."""
    message = error.message.rstrip(".")
    if type(error) is not NotProbed or (obstacle := find_obstacle(error.pid)) is None:
        way = f"; `probing attach {error.pid}` puts one in" if type(error) is NotProbed else ""
        return f"{message}{way}"
    return f"{message}, and {obstacle.message.rstrip('.')}"


class NotLookedAt(Exception):
    """A rule cannot be judged; the message says why."""


class NotYet(NotLookedAt):
    """A rule cannot be judged while only the record is; it is judged again after that."""


class Unread(NotLookedAt):
    """A rule cannot be judged, as there was no time to read all that it needs of the record."""
