"""Draws what became of the Iceberg tables of a history.

Rules of this file: records in, text out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..table import columns, render_table

if TYPE_CHECKING:
    from ....history.iceberg.outcome import Committed


def render_committed(done: Committed, *, width: int | None, color: bool) -> str:
    """One line for each table."""
    headings = columns("=table", ">added", ">removed", ">files", ">rows", ">later")
    rows = [
        [
            table.name,
            *(f"{count:,}" for count in (table.added, table.removed, table.files, table.rows)),
            f"{table.later:,}",
        ]
        for table in done.tables
    ]
    return render_table(headings, rows, width=width, color=color)
