"""Makes the Iceberg tables of a history what its files are.

Rules of this file: the order of things. What a table lacks is added to it and what is gone is taken
out of it by one commit, or by several where it is much, each of which is right by itself; so
whoever is killed has done so or not, and the next one finds out by looking. Only the footers of
files that are new to a table are read. One process at a time; where locks do not work, of two that
commit to a table at once the catalog takes one and refuses the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile

from ...errors import HistoryBusy, NoHistory, UsageError
from ...tables import SCHEMA
from ..compaction.settled import Settled
from ..files import line_of
from ..layout import look_of
from ..scanning.source import TornFile
from ..tables import KEPT_TABLES
from .catalog import begun, is_ours, saying_what_is_wrong, table_in
from .files import Finished, columns_of, finished, known_files, portions, told
from .outcome import Committed, CommittedTable
from .places import Place, place_of

_SCHEMAS = {table.name: table.schema for table in KEPT_TABLES}
_TRIES = 5


def commit(place: str, *, catalog: str | None = None) -> Committed:
    """Make the Iceberg tables of a history what its files are.

    Args:
        place: A folder, or the address of a place in a store.
        catalog: The name of the user's own; None for that of the history.

    Raises:
        NoHistory: There is nothing.
        HistoryBusy: Another process does it.
        HistoryUnwritable: It cannot be written.
        StoreUnreachable: The store cannot be asked.
        UsageError: There is no such catalog, or its tables are not of a history.
    """
    where = place_of(place)
    folders: dict[str, list[str]] = {}
    for table, folder in where.source.tables(None):
        folders.setdefault(table, []).append(folder)
    if not folders:
        raise NoHistory(place, "no process was exported to it")
    with where.alone(catalog) as tables:
        return Commit(where, tables).run(folders)


class _ReplacedError(Exception):
    """A file that was listed is not there any more."""


class _Found(NamedTuple):
    """How the files of a table differ from those that it has.

    Attributes:
        sizes: All that are there.
        rows: How many the table has of each that stays.
        old: Those that it has, which are no more.
        new: Those that it lacks, by their names and by what Iceberg calls them.
    """

    sizes: dict[str, int]
    rows: dict[str, int]
    old: list[DataFile]
    new: list[tuple[str, str]]


class Commit:
    """What one process does, by who is alone."""

    def __init__(self, place: Place, catalog: Any) -> None:
        self._place, self._source, self._catalog = place, place.source, catalog
        self._settled = place.source.settled()
        self._notes: dict[str, None] = {}

    def run(self, folders: dict[str, list[str]]) -> Committed:
        """Do it."""
        done = []
        end = self._source.begin()
        try:
            for table, places in sorted(folders.items()):
                with self._saying_what_is_wrong():
                    done.append(self._table(table, places))
        finally:
            end()
        return Committed(
            tables=tuple(one for one in done if one is not None), notes=tuple(self._notes)
        )

    @contextlib.contextmanager
    def _saying_what_is_wrong(self) -> Iterator[None]:
        with saying_what_is_wrong(self._place.name):
            try:
                yield
            except OSError as error:
                raise self._place.failure(error) from None

    def _table(self, name: str, folders: Sequence[str]) -> CommittedTable | None:
        """Commit to a table what its folders have; anew where that changes meanwhile."""
        added = removed = 0
        for _ in range(_TRIES):
            one = _TableCommit(self._place, self._catalog, self._settled, name, self._notes)
            with contextlib.suppress(_ReplacedError):
                one.run(folders)
            added, removed = added + one.added, removed + one.removed
            if one.is_done:
                return one.outcome(added, removed)
        raise HistoryBusy(f"files of the history {self._place.name} are put together")


class _TableCommit:
    """What becomes of a table.

    Attributes:
        is_done: Whether it is what its folders are.
        added, removed: How many files it got and lost.
    """

    def __init__(
        self, place: Place, catalog: Any, settled: Settled, name: str, notes: dict[str, None]
    ) -> None:
        self._place, self._source, self._catalog = place, place.source, catalog
        self._settled, self._notes = settled, notes
        self._name, self._schema = name, _SCHEMAS.get(name, SCHEMA)
        self._table = table_in(catalog, self._schema, name)
        self.is_done, self.added, self.removed = False, 0, 0
        self._files = self._rows = self._later = 0

    def run(self, folders: Sequence[str]) -> None:
        """Do it.

        Raises:
            _ReplacedError: Files are replaced meanwhile.
        """
        if self._table is not None and not is_ours(self._table):
            raise UsageError(
                f"the table {self._schema}.{self._name} of that catalog is not one of a history.",
                help="Name a catalog that has no such table.",
            )
        found = self._found(folders)
        self._files, self._rows = len(found.rows), sum(found.rows.values())
        self._later = len(found.sizes) - len(found.rows) - len(found.new)
        for old, new in portions(found.old, found.new):
            self._commit(old, self._read(new, found.sizes))
        self.is_done = True

    def outcome(self, added: int, removed: int) -> CommittedTable | None:
        """What is told of it; nothing of a table that is not begun."""
        if self._table is None:
            return None
        return CommittedTable(
            name=f"{self._schema}.{self._name}",
            added=added,
            removed=removed,
            files=self._files,
            rows=self._rows,
            later=self._later,
        )

    def _found(self, folders: Sequence[str]) -> _Found:
        """How the files differ from those that the table has.

        What a process is, is told anew while it runs, and again after a month of silence; a file
        of rows that the table has is as it was. They are listed twice: whatever was there at both
        times was not replaced in between, nor has it changed once its process was said to be over.

        Raises:
            _ReplacedError: Some were.
        """
        sizes = self._source.sizes(folders)
        names = {self._place.url(name): name for name in sizes}
        rows, looks, old = dict[str, int](), dict[str, DataFile](), list[DataFile]()
        for file in () if self._table is None else known_files(self._table):
            name = names.get(file.file_path)
            if name is None or sizes[name] != file.file_size_in_bytes:
                old.append(file)
            elif look_of(PurePath(name).name) is None:
                rows[name] = file.record_count
            else:
                looks[name] = file
        asked = [name for name in sizes if name not in rows]
        self._settled.read_ahead(map(PurePath, asked), self._place.at_once)
        again = self._source.sizes(folders)
        if not again.keys() >= sizes.keys():
            raise _ReplacedError
        stay = {
            name
            for name in asked
            if again[name] == sizes[name] and self._settled.is_settled(PurePath(name), self._name)
        }
        old += [file for name, file in looks.items() if name not in stay]
        rows |= {name: looks[name].record_count for name in looks.keys() & stay}
        new = [(name, self._place.url(name)) for name in asked if name in stay - looks.keys()]
        return _Found(sizes, rows, old, new)

    def _read(self, names: Sequence[str], sizes: dict[str, int]) -> list[Finished]:
        """Files with their footers, but for those that are damaged.

        Raises:
            _ReplacedError: One is not there any more.
        """

        def read(name: str) -> Finished | TornFile:
            try:
                metadata = self._source.footer(name)
                return finished(name, self._place.url(name), sizes[name], metadata)
            except pa.ArrowException as error:
                return TornFile(name, line_of(error))
            except TornFile as torn:
                return torn
            except FileNotFoundError:
                raise _ReplacedError from None

        files = []
        for one in self._place.at_once(read, names):
            if isinstance(one, TornFile):
                self._notes[f"the file {one.name} is damaged, and left out: {one.reason}"] = None
            else:
                files.append(one)
        return files

    def _commit(self, old: Sequence[DataFile], files: list[Finished]) -> None:
        """Commit a portion."""
        known = pa.schema([]) if self._table is None else schema_to_pyarrow(self._table.schema())
        notes = list[str]()
        columns, new = columns_of(_plain(known), files, notes)
        self._notes |= dict.fromkeys(notes)
        if not new and not old:
            return
        if self._table is None:
            self._table = begun(self._catalog, self._schema, self._name, columns)
        _change(self._table, columns, new, old)
        self._place.keep()
        self.added, self.removed = self.added + len(new), self.removed + len(old)
        self._files += len(new)
        self._rows += sum(file.metadata.num_rows for file in new)


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
