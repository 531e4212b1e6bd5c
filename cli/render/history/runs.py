"""Draws the runs of a history.

Rules of this file: records in, text out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..table import columns, render_table
from ..text import escape_controls, render_count

if TYPE_CHECKING:
    from ....history.runs import Run

_COMMIT = 10
"""Digits of a commit."""


def render_runs(runs: Sequence[Run], *, width: int | None, color: bool) -> str:
    """One line for each run; of two of one name each is called as it is to be asked for."""
    names = Counter(run.run for run in runs)
    headings = columns("=run", "=started", ">ranks", ">step", "end", "command", "=commit")
    rows = [
        [
            escape_controls(f"{run.project}/{run.run}" if names[run.run] > 1 else run.run),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_ns / 1e9)),
            _ranks(run),
            render_count(run.last_step),
            _end(run),
            escape_controls(run.command),
            escape_controls((run.git_commit or "")[:_COMMIT]),
        ]
        for run in runs
    ]
    return render_table(headings, rows, width=width, color=color)


def _ranks(run: Run) -> str:
    """How many of its ranks are there, of how many."""
    if run.world_size is None:
        return str(run.processes)
    return f"{run.processes} of {run.world_size}"


def _end(run: Run) -> str:
    """How it ended, or that it had not."""
    if run.running:
        return "ran as it was exported"
    return escape_controls(run.ending or "")
