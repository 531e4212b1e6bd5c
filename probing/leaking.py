"""Watches some steps of a training for memory that is never freed, and says what keeps it.

Rules of this file: runs at the operator's side, over what any client can ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .arming import Tell, arm_and_wait
from .errors import SqlError
from .leaks.history import HISTORY
from .leaks.report import LeakReport, report_of
from .tables import LEAK_STEPS, LEAKS
from .wire import LiveRows

if TYPE_CHECKING:
    from .client import Process
    from .wire import Armed


def find_leaks(
    process: Process, steps: int, *, timeout_s: float, tell: Tell | None = None
) -> LeakReport:
    """Watch the next steps, and look back at the record.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with how far it is, now and then.

    Raises:
        ProbingError: It cannot be armed, or no step ends in time.
    """
    armed = arm_and_wait(process, "leak", steps, timeout_s=timeout_s, tell=tell)
    history, notes = _history(process)
    rows, counts = _dicts(process.live(LEAKS.name)), _dicts(process.live(LEAK_STEPS.name))
    notes = (*armed.notes, *notes)
    return report_of(rows, counts, history, notes=notes, failure=_failure(armed))


def _failure(armed: Armed) -> str | None:
    """Why the watch did not come to its end."""
    if armed.state == "failed":
        return armed.reason
    return "somebody has ended it" if armed.done < armed.steps else None


def _history(process: Process) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """What is on record, and what to know about it."""
    try:
        return process.query(HISTORY).to_pylist(), ()
    except SqlError:  # an agent of another version, without this table
        return [], ("there is no record of memory to look back at",)


def _dicts(rows: LiveRows) -> list[Mapping[str, Any]]:
    """The rows by the names of their columns."""
    return [dict(zip(rows.columns, row, strict=True)) for row in rows.rows]
