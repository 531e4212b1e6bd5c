"""The live tables: which source computes the rows of each.

Rules of this file: one entry per live table. To add a table, declare it in `probing.tables`,
write its source under `sources/`, and name it here.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BadRequest
from ..stacks import rows_of
from ..tables import BACKTRACE, THREADS
from ..wire import LiveRows
from .sources.stacks import take_backtrace

LIVE_SOURCES: dict[str, Callable[[], LiveRows]] = {
    BACKTRACE.name: lambda: rows_of(BACKTRACE, take_backtrace()),
    THREADS.name: lambda: rows_of(THREADS, take_backtrace()),
}


def live_rows(table: str) -> LiveRows:
    """The rows of a live table now.

    Raises:
        BadRequest: There is no live table of that name.
    """
    source = LIVE_SOURCES.get(table)
    if source is None:
        raise BadRequest(f"there is no live table {table!r}")
    return source()
