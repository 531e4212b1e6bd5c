"""The rows of a live table, as they travel.

Rules of this file: names and rows, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....messages.common import LiveRows
from ....tables import Table


def live_rows_of(
    table: Table, rows: Iterable[tuple[Any, ...]], note: str | None = None
) -> LiveRows:
    """Rows with the names of their columns."""
    names = tuple([column.name for column in table.columns])
    return LiveRows(table=table.name, columns=names, rows=tuple(rows), note=note)
