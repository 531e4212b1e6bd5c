"""Rows as a table, the first hundred of them, with the texts that a terminal shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..render.cells import is_number, short_texts
from .html import paragraphs, table

if TYPE_CHECKING:
    import pyarrow as pa

    from ...messages.common import LiveRows
    from ...sql.answer import Rows

_MOST = 100


def rows_html(rows: Rows) -> str:
    """A table, and in words what of it is not shown."""
    found = rows.to_arrow()
    notes = [f"{found.num_rows:,} rows, {_MOST} shown"] * (found.num_rows > _MOST)
    notes += [rows.truncated] if rows.truncated else []
    return table_html(found.slice(0, _MOST)) + paragraphs(notes)


def table_html(found: pa.Table) -> str:
    """All of a small table."""
    columns = [short_texts(column.combine_chunks()) for column in found.columns]
    numbers = [is_number(field.type) for field in found.schema]
    return table(found.column_names, numbers, zip(*columns, strict=True))


def live_rows_html(live: LiveRows) -> str:
    """The same of a live table."""
    shown = live.rows[:_MOST]
    columns = list(zip(*shown, strict=True)) or [() for _ in live.columns]
    numbers = [
        any(isinstance(v, (int, float)) and not isinstance(v, bool) for v in column)
        for column in columns
    ]
    texts = [[None if value is None else _told(value) for value in row] for row in shown]
    notes = [f"{len(live.rows):,} rows, {_MOST} shown"] * (len(live.rows) > _MOST)
    notes += [live.note] if live.note else []
    return table(live.columns, numbers, texts) + paragraphs(notes)


def _told(value: object) -> str:
    from ..render.text import render_number

    return render_number(value) if isinstance(value, float) else str(value)
