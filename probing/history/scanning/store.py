"""The objects of a history in a store, which pyarrow reads for DuckDB.

What a statement sorts out goes down to pyarrow: columns, days, jobs, and row groups by their
statistics. Rules of this file: each object is opened before the statement is planned, for its
columns; many at once.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ...errors import QueryTimedOut, StoreTimedOut
from ...sql.database import load_whole
from ...sql.quoting import identifier
from ...sql.session import Session
from ..compaction.settled import Settled
from ..files import line_of
from ..layout import look_of, shown, values_in
from ..stores.address import shown_of, store_of
from ..stores.compaction import replaced
from ..stores.objects import Found, Store, at_once, open_store, unreachable
from ..stores.settled import settled_in
from .listing import tables_in
from .source import PARTITIONS, TornFile


class StoreFiles:
    """See `source.Source`.

    Raises:
        UsageError: That is no address of a store.
        StoreUnreachable: The store cannot be asked.
    """

    allowed: tuple[str, ...] = ()

    def __init__(self, url: str) -> None:
        self._store: Store = open_store(url)
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        self._format = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        self.name, self.store = url, store_of(url)
        self._found: dict[str, Found] = {}

    def tables(self, within: str | None, timeout_s: float | None = None) -> list[tuple[str, str]]:
        """See `source.Source`; beside the caller, whom no library keeps then."""
        if timeout_s is None:
            return tables_in(self._store, within)
        session = Session(timeout_s, interrupt=lambda: None, release=lambda: None)
        try:
            return session.call(lambda: tables_in(self._store, within))
        except QueryTimedOut:
            raise StoreTimedOut(shown_of(self.name), timeout_s) from None
        finally:
            session.close()

    def begin(self) -> Callable[[], None]:
        """Nothing keeps objects from being replaced: see `are_there`."""
        return lambda: None

    def files(self, folders: Sequence[str]) -> list[str]:
        """See `source.Source`; first they are listed, and then those that are replaced."""
        return [*self.sizes(folders)]

    def sizes(self, folders: Sequence[str]) -> dict[str, int]:
        """See `source.Source`."""
        listed = at_once(self._store.objects, folders)
        found = {one.name: one for some in listed for one in some}
        gone = replaced(self._store, frozenset(found))
        self._found.update(found)
        return {
            name: one.size
            for name, one in found.items()
            if name.endswith(".parquet") and name not in gone
        }

    def footer(self, file: str) -> pq.FileMetaData:
        """See `source.Source`."""
        return self._fragment(file, self._found[file].size).metadata

    def settled(self) -> Settled:
        """See `source.Source`."""
        return settled_in(self._store, self._found)

    def rows(
        self, connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[str]
    ) -> tuple[str, list[str]]:
        """See `source.Source`."""
        load_whole()
        fragments = at_once(self._opened, files)
        sources: list[str] = []
        columns: dict[str, str] = {}
        for schema, alike in _alike(files, fragments):
            dataset = ds.FileSystemDataset(alike, schema, self._format, self._store.fs)
            name = f"files of {table}" + (f", {len(sources) + 1}" if sources else "")
            connection.register(name, dataset)
            sources.append(f"FROM {identifier(name)}")
            columns = {**{column.lower(): column for column in schema.names}, **columns}
        return f"({' UNION ALL BY NAME '.join(sources)})", [*columns.values()]

    def _opened(self, name: str) -> Any:
        """An object that is open; what a process is may be told anew, in more bytes."""
        found = None if look_of(PurePath(name).name) else self._found.get(name)
        return self._fragment(name, None if found is None else found.size)

    def _fragment(self, name: str, size: int | None) -> Any:
        """An object that is open.

        Args:
            size: Its bytes; None where it is to be asked for, by a request more.
        """
        said = _said_by_folders(name)
        path, fs = self._store.path(name), self._store.fs
        fragment = self._format.make_fragment(path, fs, partition_expression=said, file_size=size)
        try:
            fragment.ensure_complete_metadata()
        except pa.ArrowInvalid as error:
            raise TornFile(name, line_of(error)) from None
        except FileNotFoundError:
            raise
        except OSError as error:
            if not self._is_sound(name):
                raise TornFile(name, line_of(error)) from None
            raise unreachable(self._store.url, line_of(error)) from None
        return fragment

    def _is_sound(self, name: str) -> bool:
        """Whether an object can be opened, now that it could not.

        Raises:
            FileNotFoundError: It is not there any more.
        """
        data = self._store.get(name)
        if data is None:
            raise FileNotFoundError(name)
        try:
            pq.read_metadata(pa.BufferReader(data))
        except (OSError, pa.ArrowException):
            return False
        return True

    def address(self, file: str) -> str:
        """See `source.Source`."""
        return f"{self.name.partition('://')[0]}://{self._store.path(file)}"

    def schemas(self, files: Sequence[str]) -> list[pa.Schema]:
        """See `source.Source`."""
        return [fragment.physical_schema for fragment in at_once(self._opened, files)]

    def check(self, file: str) -> None:
        """See `source.Source`."""
        data = pa.BufferReader(self._store.get(file) or b"")
        pq.read_table(data, page_checksum_verification=True, partitioning=None)

    def are_there(self, files: Sequence[str]) -> bool:
        """See `source.Source`."""
        folders = sorted({name.partition("/day=")[0] for name in files})
        found = {one.name for some in at_once(self._store.objects, folders) for one in some}
        return found.issuperset(files)


def _said_by_folders(name: str) -> Any:
    """What the folders of an object say, as pyarrow has it."""
    columns = ((ds.field(column), shown(text)) for column, text in values_in(name).items())
    said = (one.is_null() if text is None else one == text for one, text in columns)
    return functools.reduce(operator.and_, said)


def _alike(files: Sequence[str], fragments: Sequence[Any]) -> list[tuple[pa.Schema, list[Any]]]:
    """The objects whose columns have the same types, and all their columns.

    A table of a script's own may have other types in a later run: DuckDB puts those together.

    Raises:
        TornFile: The columns of one do not fit those of its folders.
    """
    found: list[tuple[pa.Schema, list[Any]]] = []
    folders = pa.schema([(name, pa.string()) for name in PARTITIONS])
    for name, fragment in zip(files, fragments, strict=True):
        schema = fragment.physical_schema.remove_metadata()
        for i, (known, alike) in enumerate(found):
            with contextlib.suppress(pa.ArrowException):
                found[i] = (pa.unify_schemas([known, schema]), alike)
                alike.append(fragment)
                break
        else:
            try:
                found.append((pa.unify_schemas([folders, schema]), [fragment]))
            except pa.ArrowException as error:
                raise TornFile(name, line_of(error)) from None
    return found
