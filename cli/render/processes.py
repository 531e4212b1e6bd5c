"""The list of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .table import Heading, render_table
from .text import escape_controls, render_age, render_count

if TYPE_CHECKING:
    from ...listing import ProcessSummary


def render_processes(processes: Sequence[ProcessSummary], *, width: int | None, color: bool) -> str:
    """One line per process; the address only where any listens."""
    headings = [
        Heading(name="pid", is_number=True),
        Heading(name="rank", is_number=True),
        Heading(name="state"),
        Heading(name="step", is_number=True),
        Heading(name="step age", is_number=True),
        Heading(name="command"),
    ]
    rows = [
        [
            str(process.pid),
            "" if process.rank is None else str(process.rank),
            process.state,
            render_count(process.step),
            render_age(process.step_age_s),
            escape_controls(process.command),
        ]
        for process in processes
    ]
    if any(process.listen for process in processes):
        headings.insert(5, Heading(name="listens on"))
        for row, process in zip(rows, processes, strict=True):
            row.insert(5, process.listen or "")
    return render_table(headings, rows, width=width, color=color)
