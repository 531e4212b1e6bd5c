"""The parts of aggregates as a table."""

from __future__ import annotations

import pyarrow as pa

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
