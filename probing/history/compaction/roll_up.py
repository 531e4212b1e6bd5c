"""Rows of modules that are old, rolled up: one for all calls of a module in a step.

What is lost: when a call was, its number, and each call's own time where a module was called more
than once in a step; there the median of these calls stands, with how many they were and what they
took together. Rules of this file: nothing is held but a piece of rows. Rows that are rolled up
already stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...sql.database import fresh_database, load_whole
from ...sql.quoting import identifier
from ...tables import TORCH_TRACE
from ..tables import CALLS, TOTAL
from .merge import Change

TABLE = TORCH_TRACE.name
_MEMORY_MIB = 1024
_KEYS = (
    *("run", "rank", "host", "pid", "step", "module", "stage", "class", "root", "model"),
    *("recomputed", "training"),
)
_STEP = ("run", "rank", "host", "pid", "step")
_COUNT = f"CAST(sum(coalesce({CALLS}, 1)) AS BIGINT)"
_VALUES = {
    "duration": "median(duration)",
    "allocated": "max(allocated)",
    "allocated_bytes": "max(allocated_bytes)",
    "failed": "bool_or(failed)",
    "start_ns": "CAST(NULL AS BIGINT)",
    "duration_ns": "CAST(NULL AS BIGINT)",
    "seq": "CAST(NULL AS BIGINT)",
    CALLS: _COUNT,
    TOTAL: f"CASE WHEN {_COUNT} > 1 THEN sum(coalesce({TOTAL}, duration)) END",
}
"""What becomes of a column that is no key; of any other, one of the values."""


def is_rolled_up(footer: pq.FileMetaData) -> bool:
    """Whether all rows of a file are, by what it says of them."""
    names = footer.schema.names
    if CALLS not in names:
        return False
    place = names.index(CALLS)
    groups = (footer.row_group(number).column(place) for number in range(footer.num_row_groups))
    return all(one.statistics is not None and one.statistics.null_count == 0 for one in groups)


class RollUp(Change):
    """All calls of a module in a step become one."""

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Change`."""
        for name, kind in ((CALLS, pa.int64()), (TOTAL, pa.float64())):
            if name not in schema.names:
                schema = schema.append(pa.field(name, kind))
        return schema

    def pieces(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """See `Change`; a step that goes on in the next piece is held back for it."""
        rest: pa.Table | None = None
        for piece in pieces:
            rows = piece if rest is None else pa.concat_tables([rest, piece])
            at = _last_step(rows)
            rest = rows.slice(at)
            if at:
                yield _rolled_up(rows.slice(0, at))
        if rest is not None and rest.num_rows:
            yield _rolled_up(rest)

    def count(self, piece: pa.Table) -> int:
        """See `Change`."""
        return int(pc.sum(piece[CALLS]).as_py() or 0)

    def count_before(self, path: Path) -> int:
        """See `Change`."""
        if CALLS not in pq.read_schema(path).names:
            return super().count_before(path)
        calls = pq.read_table(path, columns=[CALLS], partitioning=None)[CALLS]
        return int(pc.sum(pc.fill_null(calls, 1)).as_py() or 0)


def _last_step(rows: pa.Table) -> int:
    """Where the last step of the last process begins."""
    if not rows.num_rows:
        return 0
    same = None
    for name in _STEP:
        last = rows[name][-1]
        one = pc.is_null(rows[name]) if not last.is_valid else pc.equal(rows[name], last)
        one = pc.fill_null(one, fill_value=False)
        same = one if same is None else pc.and_(same, one)
    others = pc.indices_nonzero(pc.invert(same))
    return int(others[-1].as_py()) + 1 if len(others) else 0


def _rolled_up(rows: pa.Table) -> pa.Table:
    """Some rows as one for each module, stage and step; calls that have not ended by themselves."""
    load_whole()
    columns = ", ".join(f"{_value(name)} AS {identifier(name)}" for name in rows.schema.names)
    keys = ", ".join(f"piece.{identifier(name)}" for name in _KEYS)
    with fresh_database(_MEMORY_MIB) as connection:
        connection.register("piece", rows)
        sql = (
            f"SELECT {columns} FROM piece GROUP BY {keys}, piece.duration IS NULL"  # noqa: S608
            " ORDER BY min(piece.seq), min(piece.step)"
        )
        return connection.sql(sql).to_arrow_table().cast(rows.schema)


def _value(name: str) -> str:
    """What becomes of a column."""
    if name in _KEYS:
        return f"piece.{identifier(name)}"
    return _VALUES.get(name, f"any_value(piece.{identifier(name)})")
