"""What is asked of the ranks, and what runs where their answers meet.

Rules of this file: records and the SQL texts made of them; nothing runs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....messages.frozen import dataclass
from ....sql.process_columns import added_columns, literal
from ....sql.quoting import identifier
from ....tables import Table

PARTIALS = "partials"
"""The table, in the schema `probing`, that the ranks' parts of aggregates are merged from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What one table is asked for on every rank.

    Attributes:
        columns: The table's own columns to move; with `items`, those that they read.
        items: The parts of aggregates to compute instead, each with its name.
        where: The condition of the rows, if one is pushed.
        tail: What follows it: ``GROUP BY``, ``ORDER BY``, ``LIMIT``.
        alias: What the texts call the table.
        choices: Conditions that tell from `rank`, `host` and `pid` alone whether a process can
            have a row at all: any one of them, each a conjunction.
        reads_added: Whether the texts read those columns.
    """

    table: Table
    columns: tuple[str, ...]
    items: tuple[str, ...] = ()
    where: str | None = None
    tail: str = ""
    alias: str = ""
    is_distinct: bool = False
    choices: tuple[str, ...] = ()
    reads_added: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether all rows are asked for, as they are."""
        return not (self.items or self.where or self.tail or self.is_distinct)

    def sql(self, *, added: Mapping[str, Any] | None, lacking: frozenset[str] = frozenset()) -> str:
        """The statement for a process, or for several.

        Args:
            added: The values of the added columns for one process; None where the table that is
                asked has these columns itself, which are then in the answer, too.
            lacking: Columns that the process's version does not have.
        """
        items = list(self.items) or [self._name(name) for name in self.columns]
        if added is None and not self.items:
            items = [*(c.name for c in added_columns(self.table)), *items]
        distinct = "DISTINCT " if self.is_distinct else ""
        text = (
            f"SELECT {distinct}{', '.join(items) or '1 AS one'} FROM {self._source(added, lacking)}"
        )
        if self.where:
            text += f" WHERE {self.where}"
        return text + (f" {self.tail}" if self.tail else "")

    def count_sql(
        self, *, added: Mapping[str, Any] | None, lacking: frozenset[str] = frozenset()
    ) -> str:
        """The statement that counts the rows."""
        text = f"SELECT count(*) AS rows FROM {self._source(added, lacking)}"
        return text + (f" WHERE {self.where}" if self.where else "")

    def _source(self, added: Mapping[str, Any] | None, lacking: frozenset[str]) -> str:
        """What follows FROM."""
        alias = f" AS {self._name(self.alias)}" if self.alias else ""
        extra = []
        if added is not None and self.reads_added:
            extra += [
                f"{literal(column, added[column.name])} AS {column.name}"
                for column in added_columns(self.table)
            ]
        extra += [
            f"{literal(column, None)} AS {self._name(column.name)}"
            for column in self.table.columns
            if column.name in lacking
        ]
        if not extra:
            return f"{self.table.full_name}{alias}"
        inner = f"(SELECT {', '.join(extra)}, * FROM {self.table.full_name})"
        return f"{inner}{alias or f' AS {self._name(self.table.name)}'}"

    def _name(self, name: str) -> str:
        """A name in these texts; those of a script's own table may be any words of SQL."""
        return identifier(name) if self.table.origin else _quoted(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a statement over many ranks is answered.

    Attributes:
        leaves: What the ranks are asked.
        root: The statement that runs over their answers.
        is_merged: Whether it merges parts of aggregates; else it is the user's, over rows.
        pushed: What the ranks do beside reading columns, in words.
    """

    leaves: tuple[Leaf, ...]
    root: str
    is_merged: bool = False
    pushed: tuple[str, ...] = ()


def _quoted(name: str) -> str:
    """A name as SQL takes it whatever it is."""
    return (
        name if name.isidentifier() and name not in _WORDS else '"' + name.replace('"', '""') + '"'
    )


_WORDS = frozenset(
    {"all", "case", "cast", "default", "desc", "end", "from", "group", "in", "order", "table", "to"}
)
