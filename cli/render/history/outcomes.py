"""Draws what became of a history: what was exported to it, put together in it, or committed of it.

Rules of this file: records in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....units import size
from ..table import columns, render_table
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....history.compaction.outcome import Compacted
    from ....history.export import Exported, ExportedTable
    from ....history.iceberg.outcome import Committed

_MISSING = (
    ("overwritten", "overwritten by newer ones before they were exported"),
    ("damaged", "damaged, and left out"),
    ("waiting", "may still change, and come with a later export"),
)


def render_exported(done: Sequence[Exported], folder: str) -> str:
    """One line for each process, and below it what is missing of it."""
    return "".join(f"{line}\n" for one in done for line in _lines(one, folder))


def _lines(one: Exported, folder: str) -> list[str]:
    new = sum(table.new for table in one.tables)
    tables = sum(table.new > 0 for table in one.tables)
    rank = "" if one.rank is None else f", rank {one.rank}"
    rows = f"{new:,} new row{'' if new == 1 else 's'}"
    if new:
        rows += f" of {tables} table{'' if tables == 1 else 's'}"
    found = [f"process {one.pid}{rank} of run {one.run}: {rows} in {folder}"]
    for what, words in _MISSING:
        counts = [(table, getattr(table, what)) for table in one.tables]
        found += _missing([(table, count) for table, count in counts if count], words)
    return found


def _missing(counts: list[tuple[ExportedTable, int]], words: str) -> list[str]:
    """What is missing of some tables, in one line."""
    if not counts:
        return []
    total = sum(count for _, count in counts)
    each = ", ".join(f"{table.name} {count:,}" for table, count in counts)
    return [f"  {total:,} row{'' if total == 1 else 's'} {words}: {each}"]


def render_compacted(done: Compacted, folder: str) -> str:
    """A line for each thing that was done."""
    lines = []
    if done.removed_files:
        upto = "" if done.removed_upto is None else f": rows up to {done.removed_upto}"
        files = plural(done.removed_files, "file")
        lines.append(f"removed {files}, {size(done.removed_bytes)}{upto}")
    if done.rolled_rows:
        lines.append(
            f"{plural(done.rolled_rows, 'row')} of modules are rolled up:"
            f" {size(done.rolled_bytes)} are now {size(done.rolled_new_bytes)}"
        )
    if done.merged_files:
        lines.append(
            f"{plural(done.merged_files, 'file')} of {size(done.merged_bytes)} are now"
            f" {plural(done.new_files, 'file')} of {size(done.new_bytes)}, with the same"
            f" {plural(done.rows, 'row')}"
        )
    if not lines:
        lines.append(f"nothing to do in {escape_controls(folder)}")
    return "\n".join(lines)


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
