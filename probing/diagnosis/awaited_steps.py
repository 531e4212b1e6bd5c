"""Waits for a step of a training, or for the first step of which a condition holds.

Rules of this file: runs at the operator's side; asks the record, and nothing of the training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ArmTimedOut, UsageError

if TYPE_CHECKING:
    from ..client.base import Process

_POLL_S = 0.2
_NOW = (
    "SELECT max(step) AS step, median(duration) AS took_s FROM"
    " (FROM python.steps ORDER BY step DESC LIMIT 32)"
)
_AHEAD_S = 3.0
"""So long it may take until what is asked for has begun."""
_AHEAD = 3
"""So many steps pass before allocations on the CPU are recorded: one is timed, in one the calls of
Python are counted."""


def wait_until_before(
    process: Process, step: int, *, timeout_s: float, tell: Callable[[int], None] | None = None
) -> None:
    """Wait until a step is so near that what is asked for begins in time, and no nearer.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with the step in progress, now and then.

    Raises:
        UsageError: It is over, or too near.
        ArmTimedOut: No step ends in time.
    """
    moved, last = time.monotonic(), -1
    while True:
        row = process.query(_NOW).to_pylist()[0]
        now = -1 if row["step"] is None else int(row["step"])
        if now > step - _AHEAD:
            raise UsageError(
                f"step {step} cannot be recorded any more: step {now} is in progress.",
                help=f"What is to be recorded must be {_AHEAD} steps ahead, at least.",
            )
        ahead = math.ceil(_AHEAD_S / row["took_s"]) if row["took_s"] else _AHEAD
        if now >= step - _AHEAD - ahead:
            return
        if now != last:
            moved, last = time.monotonic(), now
        elif time.monotonic() - moved > timeout_s:
            raise ArmTimedOut(timeout_s, 0, 1)
        if tell is not None:
            tell(now)
        time.sleep(_POLL_S)


def wait_for_condition(
    process: Process, condition: str, *, tell: Callable[[int], None] | None = None
) -> int:
    """Wait for a step that ends from now on of which a condition holds; returns the step.

    Args:
        condition: Of SQL, over the columns of python.steps.
        tell: Called with the step in progress, now and then.

    Raises:
        SqlError: It is no condition.
    """
    begun = process.query("SELECT coalesce(max(step), -1) AS step FROM python.steps").to_pylist()
    first = int(begun[0]["step"])
    sql = (
        f"SELECT (SELECT max(step) FROM python.steps) AS now, min(step) AS step FROM python.steps"  # noqa: S608 - the person's own
        f" WHERE step >= {first} AND duration IS NOT NULL AND ({condition})"
    )
    while True:
        row = process.query(sql).to_pylist()[0]
        if row["step"] is not None:
            return int(row["step"])
        if tell is not None and row["now"] is not None:
            tell(int(row["now"]))
        time.sleep(_POLL_S)
