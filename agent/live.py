"""The live tables: which source computes the rows of each.

Rules of this file: one entry per live table. To add a table, declare it in `probing.tables`,
write its source under `sources/`, and name it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..errors import BadRequest
from ..stacks import rows_of
from ..tables import BACKTRACE, DATALOADERS, THREADS
from ..wire import LiveRows
from .sources.dataloaders import DataLoaders
from .sources.stacks import take_backtrace


class Training(Protocol):
    """What live tables ask of the training in this process.

    Attributes:
        dataloaders: The data loaders that were met; None where torch is not there.
    """

    dataloaders: DataLoaders | None


def _dataloaders(training: Training) -> LiveRows:
    """The rows of python.dataloaders; what makes them is loaded now."""
    from .sources.dataloader_rows import dataloader_rows

    return dataloader_rows(training.dataloaders)


LIVE_SOURCES: dict[str, Callable[[Training], LiveRows]] = {
    BACKTRACE.name: lambda _: rows_of(BACKTRACE, take_backtrace()),
    THREADS.name: lambda _: rows_of(THREADS, take_backtrace()),
    DATALOADERS.name: _dataloaders,
}


def live_rows(table: str, training: Training) -> LiveRows:
    """The rows of a live table now.

    Raises:
        BadRequest: There is no live table of that name.
    """
    source = LIVE_SOURCES.get(table)
    if source is None:
        raise BadRequest(f"there is no live table {table!r}")
    return source(training)
