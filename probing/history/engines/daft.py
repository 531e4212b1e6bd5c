"""A history as Daft reads it, in this process.

Rules of this file: columns are found in the files by pyarrow, for Daft takes those of the first
file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..files import plain_schema
from ..layout import as_pattern
from ..scanning.source import PARTITIONS
from .quiet import set_quiet


class Daft:
    """See `asking.Engine`."""

    failures: tuple[type[Exception], ...] = (Exception,)
    """What Daft raises has no class in common."""

    def __init__(self, root: str) -> None:
        set_quiet()
        import daft

        self._daft: Any = daft
        self._frames: dict[str, Any] = {}

    def open(self, name: str, files: Sequence[str]) -> list[str]:
        """See `asking.Engine`."""
        schema = pa.unify_schemas([pq.read_schema(path).remove_metadata() for path in files])
        columns = [*plain_schema(schema), *(pa.field(key, pa.string()) for key in PARTITIONS)]
        kinds = {one.name: self._daft.DataType.from_arrow_type(one.type) for one in columns}
        self._frames[name] = self._daft.read_parquet(
            [*map(as_pattern, files)], infer_schema=False, schema=kinds, hive_partitioning=True
        )
        return list(kinds)

    def ask(self, sql: str, most: int | None) -> pa.Table:
        """See `asking.Engine`."""
        frame = self._daft.sql(sql, register_globals=False, **self._frames)
        return (frame if most is None else frame.limit(most)).to_arrow()

    def close(self) -> None:
        """See `asking.Engine`."""
        self._frames.clear()
