"""Why an interpreter gets no agent.

Rules of this file: no torch; loaded only where one is refused.
"""

from __future__ import annotations

import os

from ..errors import AttachRefused


def lacks_lock() -> AttachRefused:
    """Threads of this Python do not take turns, on which the record relies."""
    return AttachRefused(
        os.getpid(),
        "it runs a free-threaded build of Python, and the recorder relies on the interpreter lock",
        help="PYTHON_GIL=1 switches the lock on; `backtrace` works without an agent.",
    )


def second_agent() -> AttachRefused:
    """Another interpreter of this very process has an agent."""
    return AttachRefused(
        os.getpid(),
        "another interpreter in it has one, which answers for all of the process",
        help="Ask that one, by the number of the process.",
    )
