"""What is told of the Iceberg tables of a history.

Rules of this file: records, without pyiceberg.
"""

from __future__ import annotations

from ...messages.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTable:
    """What became of a table.

    Attributes:
        name: With its namespace.
        added: Files that it has got.
        removed: Files that it had, which are no more.
        files: How many it has now.
        rows: How many rows these have.
        later: Files that are not finished, and come once they are.
    """

    name: str
    added: int
    removed: int
    files: int
    rows: int
    later: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of the Iceberg tables of a history."""

    tables: tuple[CommittedTable, ...]
    notes: tuple[str, ...]
