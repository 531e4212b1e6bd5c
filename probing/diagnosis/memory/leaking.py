"""Watches some steps of a training for memory that is never freed, and says what keeps it.

Rules of this file: runs at the operator's side, over what any client can ask for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...errors import ProbingError, SqlError
from ...tables import LEAK_GROWTH, LEAK_STEPS, LEAKS
from ..arming import Tell, arm_and_wait
from ..leaks.growth import PARTS, PHASES, PHASES_OF_STEPS, grouped, phase_changes
from ..leaks.history import HISTORY
from ..leaks.report import LeakReport, report_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import Armed


_NO_PHASES = (
    "the phases of these steps are not on record: not every step has rows in python.memory;"
    " `probing PID status` tells whether its source is on"
)

_NO_RECORD = "there is no record of memory to look back at"


def find_leaks(
    process: Process,
    steps: int,
    *,
    timeout_s: float,
    tell: Tell | None = None,
    by: str = "category",
    most_held_s: float | None = None,
) -> LeakReport:
    """Watch the next steps, and look back at the record.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with how far it is, now and then.
        by: How to add up what has grown; one of `WAYS`.
        most_held_s: How long the training may be held in all. Fewer steps are watched where that
            helps; else the report has a failure.

    Raises:
        ProbingError: It cannot be armed, or no step ends in time.
    """
    armed = arm_and_wait(
        process, "leak", steps, timeout_s=timeout_s, tell=tell, most_held_s=most_held_s
    )
    history, notes = _history(process)
    rows, counts = process.live(LEAKS.name).dicts(), process.live(LEAK_STEPS.name).dicts()
    notes = (*armed.notes, *notes)
    report = report_of(rows, counts, history, notes=notes, failure=_failure(armed))
    return _added_up(process, report, by)


def _added_up(process: Process, report: LeakReport, by: str) -> LeakReport:
    """The same with what has grown, in the way that is asked for."""
    first, last = report.first_step, report.last_step
    if by in PARTS:
        groups = grouped(process.live(LEAK_GROWTH.name).dicts(), by) if by != PARTS[0] else ()
        return dataclasses.replace(report, by=by, groups=groups)
    if first is None or last is None:
        return dataclasses.replace(report, by=by)
    phases = ", ".join(f"'{phase}'" for phase in PHASES)
    sql = PHASES_OF_STEPS.format(first=first - 1, last=last, phases=phases)
    changes = phase_changes(_recorded(process, sql) or (), first, last)
    notes = report.notes if changes else (*report.notes, _NO_PHASES)
    return dataclasses.replace(report, by=by, phases=changes, notes=notes)


def _failure(armed: Armed) -> str | None:
    """Why the watch did not come to its end."""
    if armed.state == "failed":
        return armed.reason
    return (armed.reason or "somebody has ended it") if armed.done < armed.steps else None


def _history(process: Process) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """What is on record, and what to know about it."""
    rows = _recorded(process, HISTORY)
    return (rows, ()) if rows is not None else ([], (_NO_RECORD,))


def _recorded(process: Process, sql: str) -> list[dict[str, Any]] | None:
    """What python.memory holds; None of an agent of another version, without this table."""
    try:
        return process.query(sql).to_pylist()
    except ProbingError as error:
        if not error.is_a(SqlError):
            raise
        return None
