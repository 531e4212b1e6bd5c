"""Makes the Iceberg tables of a history what its folder is.

Rules of this file: the order of things. Files are listed while none is replaced; what a table lacks
is added to it and what is gone is taken out of it by one commit, so whoever is killed has done so
or not, and the next one finds out by looking. One process at a time; where locks do not work, of
two that commit to a table at once the catalog takes one and refuses the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from ...errors import NoHistory, UsageError
from ...tables import SCHEMA
from ..compaction.settled import Settled
from ..files import locked
from ..layout import iceberg_file, tables_of
from ..swap import reading
from ..tables import KEPT_TABLES
from .catalog import begun, catalog_of, is_ours, saying_what_is_wrong, table_in
from .files import Finished, columns_of, finished_in, known_files, told
from .outcome import Committed, CommittedTable

_SCHEMAS = {table.name: table.schema for table in KEPT_TABLES}


def commit(root: Path, *, catalog: str | None = None) -> Committed:
    """Make the Iceberg tables of a history what its folder is.

    Args:
        catalog: The name of the user's own; None for that of the history.

    Raises:
        NoHistory: There is nothing.
        HistoryBusy: Another process does it.
        HistoryUnwritable: It cannot be written.
        UsageError: There is no such catalog, or its tables are not of a history.
    """
    folders: dict[str, list[Path]] = {}
    for table, folder in tables_of(root):
        folders.setdefault(table, []).append(folder)
    if not folders:
        raise NoHistory(str(root), "no process was exported to it")
    busy = f"the history {root} is being put into Iceberg tables"
    with locked(root, iceberg_file(root), busy=busy):
        return _Commit(root.absolute(), catalog_of(root.absolute(), catalog)).run(folders)


class _Commit:
    """What one process does, by who holds the lock."""

    def __init__(self, root: Path, catalog: Any) -> None:
        self._root, self._catalog = root, catalog
        self._settled = Settled.in_folder(root)
        self._notes: list[str] = []

    def run(self, folders: dict[str, list[Path]]) -> Committed:
        """Do it."""
        done = []
        with reading(self._root):
            for table, places in sorted(folders.items()):
                with saying_what_is_wrong(self._root):
                    done.append(self._table(table, [self._root / place for place in places]))
        return Committed(
            tables=tuple(one for one in done if one is not None), notes=tuple(self._notes)
        )

    def _table(self, name: str, folders: Sequence[Path]) -> CommittedTable | None:
        """Commit to a table what its folders have."""
        schema = _SCHEMAS.get(name, SCHEMA)
        files, later = finished_in(self._root, name, folders, self._settled, self._notes)
        table = table_in(self._catalog, schema, name)
        if table is None and not files:
            return None
        known = pa.schema([]) if table is None else schema_to_pyarrow(table.schema())
        columns, files = columns_of(_plain(known), files, self._notes)
        if table is None:
            table = begun(self._catalog, schema, name, columns)
        if not is_ours(table):
            raise UsageError(
                f"the table {schema}.{name} of that catalog is not one of a history.",
                help="Name a catalog that has no such table.",
            )
        there = {file.uri: file for file in files}
        old = [
            file
            for file in known_files(table)
            if file.file_path not in there
            or file.file_size_in_bytes != there[file.file_path].path.stat().st_size
        ]
        kept = {file.file_path for file in known_files(table)} - {file.file_path for file in old}
        new = [file for uri, file in there.items() if uri not in kept]
        if old or new:
            _change(table, columns, new, old)
        return CommittedTable(
            name=f"{schema}.{name}",
            added=len(new),
            removed=len(old),
            files=len(files),
            rows=sum(file.metadata.num_rows for file in files),
            later=later,
        )


def _plain(schema: pa.Schema) -> pa.Schema:
    """Columns of a table as those of files are."""
    return pa.schema(
        [
            pa.field(one.name, pa.string() if pa.types.is_large_string(one.type) else one.type)
            for one in schema
        ]
    )


def _change(table: Any, columns: pa.Schema, new: Sequence[Finished], old: Sequence[Any]) -> None:
    """Commit files to a table, and the columns that come with them, at once."""
    with table.transaction() as change:
        if set(columns.names) - {one.name for one in table.schema().fields}:
            with change.update_schema() as update:
                update.union_by_name(columns)
        metadata = change.table_metadata
        if metadata.name_mapping() is None or len(metadata.schema().fields) != len(
            table.schema().fields
        ):
            mapping = metadata.schema().name_mapping.model_dump_json()
            change.set_properties({"schema.name-mapping.default": mapping})
        snapshot = change.update_snapshot()
        with snapshot.overwrite() if old else snapshot.fast_append() as producer:
            for file in old:
                producer.delete_data_file(file)
            for file in new:
                producer.append_data_file(told(file, change.table_metadata))
