"""Counts lines where alarms raise errors: the tests of time limits, and the commands with one.

coverage.py takes a lock around three calls of C at each call of a function. The error that an alarm
raises just then leaves it taken for ever, and with it every thread waits. What it guards is a
dictionary, which the interpreter's own lock guards as well.
"""

from __future__ import annotations

import os
import sys


def count_without_lock() -> None:
    """Take the lock away, here and in what is forked; nothing happens where nobody counts."""
    if "coverage" not in sys.modules:
        return
    _take_away()
    os.register_at_fork(after_in_child=_take_away)  # after coverage's own, which makes a new one


def _take_away() -> None:
    import coverage

    counting = coverage.Coverage.current()
    collector = getattr(counting, "_collector", None)
    if collector is not None:
        assert hasattr(collector, "data_lock"), "coverage.py keeps its lock elsewhere"
        collector.data_lock = None
