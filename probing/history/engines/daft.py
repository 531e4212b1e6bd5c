"""A history as Daft reads it, in this process.

Rules of this file: columns are found in the files by pyarrow, for Daft takes those of the first
file alone. Daft takes each folder KEY=VALUE of a path for a column, and it before that of the file:
where a folder above the history is called as a column, its own folders are read from the paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..files import plain_schema
from ..layout import as_pattern, keys_above, shown, values_in
from ..scanning.source import FILE_OF_A_ROW, PARTITIONS, Source
from ..stores.address import is_url
from . import s3
from .quiet import not_taken, set_quiet


class Daft:
    """See `asking.Engine`.

    Raises:
        StoreUnreachable: There are no credentials for the store.
    """

    failures: tuple[type[Exception], ...] = (Exception,)
    """What Daft raises has no class in common."""
    name = "daft"

    def __init__(self, source: Source) -> None:
        set_quiet()
        import daft

        self._daft: Any = daft
        self._source = source
        self._frames: dict[str, Any] = {}
        self.passing: tuple[type[Exception], ...] = (daft.exceptions.DaftTransientError,)
        self._settings = s3.of_daft(daft, source.name) if is_url(source.name) else None

    def open(self, name: str, files: Sequence[str]) -> list[str]:
        """See `asking.Engine`."""
        schemas = [schema.remove_metadata() for schema in self._source.schemas(files)]
        schema = plain_schema(pa.unify_schemas(schemas))
        own = {one.name: one.type for one in schema if one.name not in PARTITIONS}
        paths = [self._source.address(file) for file in files]
        if keys_above(paths[0]).isdisjoint(own):
            columns = own | dict.fromkeys(PARTITIONS, pa.string())
            self._frames[name] = self._read(paths, columns, hive_partitioning=True)
        else:
            frame = self._read(paths, own, file_path_column=FILE_OF_A_ROW)
            self._frames[name] = self._with_folders(frame, paths)
        return [*own, *PARTITIONS]

    def _read(self, paths: Sequence[str], columns: dict[str, pa.DataType], **how: Any) -> Any:
        """The rows of some files."""
        kind_of = self._daft.DataType.from_arrow_type
        kinds = {name: kind_of(kind) for name, kind in columns.items()}
        return self._daft.read_parquet(
            [*map(as_pattern, paths)],
            infer_schema=False,
            schema=kinds,
            io_config=self._settings,
            **how,
        )

    def _with_folders(self, frame: Any, paths: Sequence[str]) -> Any:
        """Rows with what the folders of their files say; no file is passed over by its day."""
        col, lit, functions = self._daft.col, self._daft.lit, self._daft.functions
        said = [values_in(path) for path in paths]
        for column, place in zip(PARTITIONS, range(-len(PARTITIONS) - 1, -1), strict=True):
            folder = functions.split(col(FILE_OF_A_ROW), "/").get(place)
            value = functions.substr(folder, len(column) + 1)
            for name in sorted({names[column] for names in said}):
                if shown(name) != name:
                    meant = lit(shown(name)).cast(self._daft.DataType.string())
                    value = functions.when(folder == f"{column}={name}", meant).otherwise(value)
            frame = frame.with_column(column, value)
        return frame

    def ask(self, sql: str, most: int | None) -> pa.Table:
        """See `asking.Engine`."""
        try:
            frame = self._daft.sql(sql, register_globals=False, **self._frames)
        except Exception as error:  # noqa: BLE001 - see `failures`; no file was read yet
            raise not_taken(self.name, error) from None
        return (frame if most is None else frame.limit(most)).to_arrow()

    def close(self) -> None:
        """See `asking.Engine`."""
        self._frames.clear()
