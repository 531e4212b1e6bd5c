"""Recorded tables of several ranks, made by hand and asked by DuckDB alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from probing.cli.questions.records import put_in
from probing.ring.arrow_tables import schema_of
from probing.sql.process_columns import with_ranks
from probing.tables import TABLES_BY_NAME

Rows = Sequence[Mapping[str, Any]]


def asked(sql: str, ranks: Mapping[int, Mapping[str, Rows]], **given: str) -> list[dict[str, Any]]:
    """What a statement says of ranks whose rows are these; each numbers its own."""
    engine = duckdb.connect()
    engine.execute("CREATE SCHEMA python; USE memory.python")
    for name in ("steps", "torch_trace", "evaluations", "collectives", "device_times"):
        added = {"host": "node", "job": "night"}
        rows = [
            {**added, "rank": rank, "pid": 7, "seq": seq, **row}
            for rank, tables in ranks.items()
            for seq, row in enumerate(tables.get(name, ()), 1)
        ]
        schema = schema_of(with_ranks(TABLES_BY_NAME[name]))
        engine.register("made", pa.Table.from_pylist(rows, schema=schema))
        engine.execute(f"CREATE TABLE {name} AS FROM made")
    found: list[dict[str, Any]] = engine.sql(put_in(sql, given)).to_arrow_table().to_pylist()
    return found
