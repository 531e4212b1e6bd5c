"""The rows of probing.sources: what records, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...messages.common import LiveRows
from ...tables import (
    ALLOC_EVENTS,
    BATCHES,
    DEVICE_TIMES,
    METRICS,
    NAN_STEPS,
    OOMS,
    RECORDED_TABLES,
    SAMPLES,
    SOURCES,
    STEPS,
    TORCH_TRACE,
)

if TYPE_CHECKING:
    from .no_training import NoTraining
    from .source import SourceReport
    from .training import TorchTraining

_TABLES = {
    **{table.name: table for table in RECORDED_TABLES},
    "allocations": ALLOC_EVENTS,
    "dataloaders": BATCHES,
    "stack samples": SAMPLES,
    "marks": METRICS,
    "nan-guard": NAN_STEPS,
    "gradient norms": STEPS,
    "gradient scaler": STEPS,
    "out of memory": OOMS,
    "device times": DEVICE_TIMES,
}
"""The tables that sources write to, where that is not the one of the module calls: those of their
names, and the tables of sources that are called otherwise."""


def source_rows(training: TorchTraining | NoTraining, own: Sequence[SourceReport]) -> LiveRows:
    """The rows of ``probing.sources`` now.

    Args:
        own: Those of the tables that the script and plugins have declared.
    """
    compiled = _compiled(training)
    reports = [*training.source_reports(), *own]
    note = None if reports else "torch has not been imported, so nothing is recorded"
    return LiveRows.of(SOURCES, [_row(_noted(report, compiled)) for report in reports], note)


def _compiled(training: TorchTraining | NoTraining) -> str | None:
    """What the record of module calls does not see inside compiled code."""
    recording = training.watched()
    if recording is None:
        return None
    from ..sources.model.model_rows import compiled_note

    return compiled_note(recording)


def _noted(report: SourceReport, compiled: str | None) -> SourceReport:
    """A report with the notes that belong to it."""
    if report.source != "modules" or compiled is None:
        return report
    note = compiled if report.note is None else f"{report.note}; {compiled}"
    return report._replace(note=note)


def _row(report: SourceReport) -> tuple[str | float | int | None, ...]:
    table = report.table
    if table is None:
        table = _TABLES.get(report.source, TORCH_TRACE).full_name
    return (report.source, report.state, table, report.cost_s, report.faults, report.note)
