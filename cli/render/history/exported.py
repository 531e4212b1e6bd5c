"""Draws what went into a history, and what did not.

Rules of this file: records in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....history.export import Exported, ExportedTable

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
