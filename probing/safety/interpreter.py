"""Leaves alone an interpreter that the agent could do harm in.

Rules of this file: no torch; asked before the agent takes anything.
"""

from __future__ import annotations

import os
import sys

from ..errors import AttachRefused


def require_lock() -> None:
    """Make sure that threads of this Python take turns, on which the record relies.

    Raises:
        AttachRefused: It is a free-threaded build, and its lock is not switched on.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise AttachRefused(
            os.getpid(),
            "it runs a free-threaded build of Python, and the recorder relies on the interpreter"
            " lock",
            help="PYTHON_GIL=1 switches the lock on; `backtrace` works without an agent.",
        )


def refuse_second_agent() -> AttachRefused:
    """Another interpreter of this very process has an agent."""
    return AttachRefused(
        os.getpid(),
        "another interpreter in it has one, which answers for all of the process",
        help="Ask that one, by the number of the process.",
    )
