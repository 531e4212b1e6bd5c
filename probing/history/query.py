"""SQL over all runs of a history: DuckDB over its Parquet files, one fresh database for each query.

Rules of this file: files are read where a scan needs them, so that a table may be larger than the
memory; nothing outside of the folder can be read, and nothing written. A file that is damaged is
left out and told of, where that is known before the statement runs; else the query ends with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from ..errors import DamagedHistory, HistoryBusy, NoHistory, QueryTimedOut
from ..settings import Settings
from ..sql import gate as sql_gate
from ..sql.answer import Answer
from ..sql.database import fresh_database, lock
from ..sql.engine import Query, relation_of
from ..sql.errors import SqlContext
from ..tables import Table
from .layout import job_folder
from .scanning.chosen import Chosen
from .scanning.failures import message_of, reason_of
from .scanning.folder import FolderFiles
from .scanning.source import Source
from .scanning.views import MEMORY, create_views
from .stores.address import is_url
from .tables import HISTORY_TABLES, KEPT_TABLES, in_history

_MEMORY_MIB = 1024
"""What a statement may use, unless a setting allows it more."""
_MOST_THREADS = 4
_TRIES = 5
R = TypeVar("R")
_LOOK_S = 5.0
"""How long the damaged file is looked for."""
_OF_THE_STATEMENT = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.InterruptException,
    duckdb.OutOfMemoryException,
    duckdb.PermissionException,
    duckdb.ConversionException,
)
"""What DuckDB raises whatever is in the files."""
_FAILURES = (duckdb.Error, pa.ArrowException, OSError, MemoryError, RuntimeError)


class History:
    """All runs of a history, to be asked.

    Args:
        place: A folder, or the address of a place in a store.
        notes: Gets sentences about what was left out.
        chosen: The one run or process whose rows are there; None for those of all.
        timeout_s: What a store may take to say which tables there are; None for no limit.

    Attributes:
        catalog: What the database is called that has the tables.
        is_alone: Whether a table may be named without it.

    Raises:
        UsageError: It is no such place.
        NoHistory: There is nothing in it.
        StoreUnreachable: The store cannot be asked.
        StoreTimedOut: It has not answered in time.
    """

    def __init__(
        self,
        place: str,
        notes: list[str] | None = None,
        *,
        chosen: Chosen | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.source: Source = source_of(place)
        self.chosen = chosen
        self.catalog, self.is_alone = MEMORY, True
        self.notes = notes if notes is not None else []
        self._folders: dict[str, list[str]] = {}
        self._files: dict[str, list[str]] = {}
        self._left_out: set[str] = set()
        for table, folder in self._tables(timeout_s):
            self._folders.setdefault(table, []).append(folder)
        if not self._folders:
            raise NoHistory(place, "no process was exported to it")

    def query(self, sql: str, *, timeout_s: float, max_rows: int | None = None) -> Answer:
        """Start a statement; the answer streams its rows as they are computed.

        Args:
            timeout_s: What it may take.
            max_rows: Where to cut the answer.

        Raises:
            SqlError: It cannot be run, is refused, or needs too much memory.
            QueryTimedOut: Its time is up.
            DamagedHistory: A file that it reads is damaged.
            HistoryBusy: Files that it reads were replaced, again and again.
        """
        return Answer(self._started(_HistoryQuery, sql, timeout_s, max_rows))

    def schema(self, sql: str, *, timeout_s: float) -> pa.Schema:
        """The columns of the rows, of which none is computed; raises what `query` does."""
        query = self._started(_HistoryColumns, sql, timeout_s)
        query.close()
        return query.schema

    def _started(self, kind: type[Q], sql: str, timeout_s: float, max_rows: int | None = None) -> Q:
        """A statement that has been started."""
        sql_gate.check_text(sql)
        context = SqlContext(
            sql=sql,
            tables=[in_history(table) for table in KEPT_TABLES],
            timeout_s=timeout_s,
            memory_mib=statement_memory_mib(),
            catalog="" if self.is_alone else self.catalog,
        )

        def start() -> Q:
            query = kind((), context, max_rows=max_rows, max_bytes=None)
            query.history = self
            query.start()
            return query

        return again_if_replaced(start)

    def tables(self) -> tuple[Table, ...]:
        """Every table; one that a newer version has exported has the columns of its files."""
        known = {table.name: table for table in (*HISTORY_TABLES, *KEPT_TABLES)}
        new = sorted(self._folders.keys() - known.keys())
        others = (Table(name=name, doc="", kind="recorded", columns=()) for name in new)
        return (*known.values(), *others)

    def _tables(self, timeout_s: float | None) -> list[tuple[str, str]]:
        """Where rows may be: of a run that is chosen, what its job has."""
        one, list_in = self.chosen, self.source.tables
        found = [] if one is None else list_in(job_folder(one.project, one.job), timeout_s)
        return found or list_in(None, timeout_s)

    def list_anew(self) -> None:
        """Forget which files there were; by who keeps them from being replaced."""
        self._files.clear()

    def files(self, table: str) -> list[str]:
        """The files of a table, without those that are left out; listed when first asked for."""
        if table not in self._files:
            found = self.source.files(self._folders.get(table, ()))
            if self.chosen is not None:
                found = list(filter(self.chosen.may_be_in, found))
            self._files[table] = [name for name in found if name not in self._left_out]
        return self._files[table]

    def keep(self, table: str, files: list[str]) -> None:
        """Go on with some of the files of a table, until they are listed anew."""
        self._files[table] = files

    def are_there(self) -> bool:
        """Whether the files that a statement reads are there still."""
        return self.source.are_there([name for files in self._files.values() for name in files])

    def file_in(self, error: BaseException) -> str | None:
        """The file that an error of DuckDB names."""
        text = message_of(error)
        found = (name for files in self._files.values() for name in files if name in text)
        return next(found, None)

    def damaged_file(self) -> str | None:
        """The first damaged file of the tables that were asked; DuckDB does not always tell."""
        until_s = time.monotonic() + _LOOK_S
        for name in (name for files in self._files.values() for name in files):
            try:
                self.source.check(name)
            except (pa.ArrowException, OSError):
                return name
            if time.monotonic() > until_s:
                return None
        return None

    def leave_out(self, name: str, why: str) -> None:
        """Go on without a damaged file."""
        for files in self._files.values():
            if name in files:
                files.remove(name)
        self._left_out.add(name)
        self.notes.append(f"the file {name} is damaged, and left out: {why}")


def again_if_replaced(attempt: Callable[[], R]) -> R:
    """What an attempt returns; it begins again, some times, where files that it reads are replaced.

    Raises:
        HistoryBusy: They were, each time.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(HistoryBusy):
            return attempt()
    return attempt()


def statement_memory_mib() -> int:
    """What a statement may use, in MiB, by the settings of this process."""
    return max(_MEMORY_MIB, Settings.from_env(os.environ).query_memory_mib)


def source_of(place: str) -> Source:
    """Where the files of a history are.

    Raises:
        UsageError: It is no place for one.
        NoHistory: There is no such folder.
        StoreUnreachable: The store cannot be asked.
    """
    if not is_url(place):
        return FolderFiles(place)
    from .scanning.store import StoreFiles  # only here, for it costs a folder nothing then

    return StoreFiles(place)


class _HistoryQuery(Query):
    """One statement over the files of a history."""

    history: History
    _end: Callable[[], None] | None = None

    def _open(self) -> None:
        """Start the statement; on the session's thread."""
        self._is_whole = True
        self._end = self.history.source.begin()
        self.history.list_anew()
        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._connection = connection = fresh_database(self._context.memory_mib, threads=threads)
        with contextlib.suppress(duckdb.Error):  # a version that has no such setting
            connection.execute("SET parquet_metadata_cache = true")  # read thrice otherwise
        create_views(connection, self.history, self._context.sql)
        lock(connection, self.history.source.allowed)
        self._run(connection)

    def _release(self) -> None:
        """Close the database, and let files be replaced; on the session's thread."""
        super()._release()
        end, self._end = self._end, None
        if end is not None:
            end()

    def _step(self, function: Any) -> Any:
        """Run a step in time; a damaged file is an error of its own."""

        def checked() -> Any:
            try:
                return function()
            except _FAILURES as error:
                is_of_files = not isinstance(error, _OF_THE_STATEMENT)
                if is_of_files and not self.history.are_there():
                    what = f"files of the history {self.history.source.name} are put together"
                    raise HistoryBusy(what) from None
                path = self.history.file_in(error)
                if path is None and is_of_files:
                    path = self.history.damaged_file()
                if path is None:
                    raise
                raise DamagedHistory(path, reason_of(error, path)) from None

        try:
            return super()._step(checked)
        except QueryTimedOut:
            raise QueryTimedOut(self._context.timeout_s, of=self.history.source.store) from None


class _HistoryColumns(_HistoryQuery):
    """The same, for its columns alone."""

    def _begin_rows(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Have them told, and no row computed."""
        self.schema = relation_of(connection, sql).limit(0).to_arrow_table().schema


Q = TypeVar("Q", bound=_HistoryQuery)
