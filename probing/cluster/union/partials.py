"""The parts of aggregates as a table, and those of some ranks made one.

Rules of this file: parts that do not fit together are passed on as they are; who merges them in
the end will find out, and move rows instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...errors import ProbingError
from ...sql.engine import Engine
from ...tables import OWN_SCHEMA, Table
from .leaves import PARTIALS


class Partials:
    """The parts of aggregates, as the ranks gave them."""

    def __init__(self, rows: pa.Table) -> None:
        self.table = Table(name=PARTIALS, doc="", kind="live", columns=(), schema=OWN_SCHEMA)
        self.arrow_schema = rows.schema
        self._rows = rows

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        return self._rows


def combined(parts: Sequence[pa.Table], sql: str, *, timeout_s: float) -> pa.Table:
    """The parts of all, by the statement of a `Leaf`, in the types that they came in.

    Raises:
        pyarrow.ArrowException: They have no types in common.
    """
    rows = pa.concat_tables(parts, promote_options="permissive")
    try:
        with Engine([Partials(rows)]).run(sql, timeout_s=timeout_s) as answer:
            return answer.to_arrow().cast(rows.schema)
    except (ProbingError, ValueError, pa.ArrowException):
        return rows
