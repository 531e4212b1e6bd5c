"""The files of a history in a folder, which DuckDB reads itself."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import NoHistory
from ...sql.quoting import identifier, text_literal
from ..compaction.settled import Settled
from ..files import line_of
from ..layout import files_in, shown, tables_of, unquoted, values_in
from ..swap import begin_reading, replaced
from .source import FILE_OF_A_ROW, PARTITIONS, TornFile


class FolderFiles:
    """See `source.Source`.

    Raises:
        NoHistory: There is no such folder.
    """

    def __init__(self, place: str) -> None:
        self._root = Path(place).absolute()
        self.name, self.store = place, ""
        self.allowed: tuple[str, ...] = (f"{self._root}/", f"{glob.escape(str(self._root))}/")
        if not self._root.is_dir():
            raise NoHistory(place, "there is no such folder")

    def tables(self, within: str | None, timeout_s: float | None = None) -> list[tuple[str, str]]:
        """See `source.Source`."""
        try:
            found = tables_of(self._root) if within is None else tables_of(self._root, within)
            return [(table, str(path)) for table, path in found]
        except OSError as error:
            raise NoHistory(self.name, error.strerror or "it cannot be read") from None

    def begin(self) -> Callable[[], None]:
        """Keep files from being replaced until the end."""
        lock = begin_reading(self._root)
        return lambda: None if lock is None else os.close(lock)

    def files(self, folders: Sequence[str]) -> list[str]:
        """See `source.Source`."""
        gone = replaced(self._root)
        found = (path for folder in folders for path in files_in(Path(folder)))
        return [str(path) for path in found if path not in gone]

    def sizes(self, folders: Sequence[str]) -> dict[str, int]:
        """See `source.Source`."""
        return {name: os.stat(name).st_size for name in self.files(folders)}

    def footer(self, file: str) -> pq.FileMetaData:
        """See `source.Source`."""
        try:
            return pq.read_metadata(file)
        except (OSError, pa.ArrowException) as error:
            raise TornFile(file, line_of(error)) from None

    def settled(self) -> Settled:
        """See `source.Source`."""
        return Settled.in_folder(self._root)

    def rows(
        self, connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[str]
    ) -> tuple[str, list[str]]:
        """See `source.Source`."""
        names = ", ".join(text_literal(glob.escape(path)) for path in files)
        rows = (
            f"read_parquet([{names}], union_by_name = true, hive_partitioning = false,"
            f" filename = {text_literal(FILE_OF_A_ROW)})"
        )
        described = connection.execute(f"DESCRIBE FROM {rows}").fetchall()
        own = [str(row[0]) for row in described][:-1]
        own = [column for column in own if column.lower() not in PARTITIONS]
        chosen = ", ".join([*map(identifier, own), *_of_folders(files)])
        return f"(SELECT {chosen} FROM {rows})", [*own, *PARTITIONS]  # noqa: S608 - of names

    def address(self, file: str) -> str:
        """See `source.Source`."""
        return file or str(self._root)

    def schemas(self, files: Sequence[str]) -> list[pa.Schema]:
        """See `source.Source`."""
        return [pq.read_schema(file) for file in files]

    def check(self, file: str) -> None:
        """See `source.Source`."""
        pq.read_table(file, page_checksum_verification=True, partitioning=None)

    def are_there(self, files: Sequence[str]) -> bool:
        """They are, for they are kept from being replaced."""
        return True


def _of_folders(files: Sequence[str]) -> Iterator[str]:
    """The columns that the folders within a history say; no folder above it says any."""
    said = [values_in(file) for file in files]
    for column, place in zip(PARTITIONS, range(-len(PARTITIONS) - 1, -1), strict=True):
        value = f"substr(split_part({identifier(FILE_OF_A_ROW)}, '/', {place}), {len(column) + 2})"
        cases = "".join(
            f" WHEN {text_literal(name)} THEN {'NULL' if text is None else text_literal(text)}"
            for name in sorted({names[column] for names in said})
            if (text := shown(name)) != unquoted(name) or text is None
        )
        decoded = f"url_decode({value})"
        yield f"{f'CASE {value}{cases} ELSE {decoded} END' if cases else decoded} AS {column}"
