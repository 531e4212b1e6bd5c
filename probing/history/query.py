"""SQL over all runs of a history: DuckDB over its Parquet files, one fresh database for each query.

Rules of this file: files are read where a scan needs them, so that a table may be larger than the
memory; nothing outside of the folder can be read, and nothing written. A file that is damaged is
left out and told of, where that is known before the statement runs; else the query ends with it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import DamagedHistory, NoHistory
from ..sql import gate as sql_gate
from ..sql.answer import Answer
from ..sql.database import fresh_database, lock
from ..sql.engine import Query
from ..sql.errors import SqlContext
from ..sql.process_columns import literal
from ..sql.quoting import identifier, text_literal
from ..tables import OWN_SCHEMA, SCHEMA, Column, Table
from .export import history_folder
from .layout import files_in, job_folder, tables_of
from .swap import begin_reading, replaced
from .tables import HISTORY_TABLES, KEPT_TABLES, in_history

_MEMORY_MIB = 1024
_MOST_THREADS = 4
_PARTITIONS = "{'project': VARCHAR, 'job': VARCHAR, 'table': VARCHAR, 'day': VARCHAR}"
_READS_ANY = re.compile(r"query", re.IGNORECASE)
"""What a statement has in it that reads a table without naming it: `query`, `query_table`."""
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


EVERY_RANK = -1


class Chosen(NamedTuple):
    """One run of a history, or of several ranks one.

    Attributes:
        rank: Which one; None of a process without one, EVERY_RANK for all.
    """

    run: str
    project: str
    job: str | None
    rank: int | None


class History:
    """A folder of runs, to be asked.

    Args:
        place: The folder.
        notes: Gets sentences about what was left out.
        chosen: The one run or process whose rows are there; None for those of all.

    Raises:
        UsageError: It is no folder.
        NoHistory: There is nothing in it.
    """

    def __init__(
        self, place: str, notes: list[str] | None = None, *, chosen: Chosen | None = None
    ) -> None:
        self.root = history_folder(place)
        self.chosen = chosen
        self.notes = notes if notes is not None else []
        if not self.root.is_dir():
            raise NoHistory(place, "there is no such folder")
        self._folders: dict[str, list[Path]] = {}
        self._files: dict[str, list[Path]] = {}
        self._left_out: set[Path] = set()
        self._passed_over: set[Path] = set()
        try:
            for table, path in self._tables():
                self._folders.setdefault(table, []).append(path)
        except OSError as error:
            raise NoHistory(place, error.strerror or "it cannot be read") from None
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
        """
        sql_gate.check_text(sql)
        context = SqlContext(
            sql=sql,
            tables=[in_history(table) for table in KEPT_TABLES],
            timeout_s=timeout_s,
            memory_mib=_MEMORY_MIB,
        )
        query = _HistoryQuery((), context, max_rows=max_rows, max_bytes=None)
        query.history = self
        return query.answer()

    def tables(self) -> tuple[Table, ...]:
        """Every table; one that a newer version has exported has the columns of its files."""
        known = {table.name: table for table in (*HISTORY_TABLES, *KEPT_TABLES)}
        new = sorted(self._folders.keys() - known.keys())
        others = (Table(name=name, doc="", kind="recorded", columns=()) for name in new)
        return (*known.values(), *others)

    def _tables(self) -> list[tuple[str, Path]]:
        """Where rows may be: of a run that is chosen, what its job has."""
        one = self.chosen
        found = [] if one is None else list(tables_of(self.root, job_folder(one.project, one.job)))
        return found or list(tables_of(self.root))

    def list_anew(self) -> None:
        """Forget which files there were; by who keeps them from being replaced."""
        self._files.clear()
        self._passed_over = self._left_out | replaced(self.root)

    def files(self, table: str) -> list[Path]:
        """The files of a table, without those that are left out; listed when first asked for."""
        if table not in self._files:
            found = (path for folder in self._folders.get(table, ()) for path in files_in(folder))
            self._files[table] = [path for path in found if path not in self._passed_over]
        return self._files[table]

    def file_in(self, error: BaseException) -> Path | None:
        """The file that an error of DuckDB names."""
        text = _message(error)
        found = (path for files in self._files.values() for path in files if str(path) in text)
        return next(found, None)

    def damaged_file(self) -> Path | None:
        """The first damaged file of the tables that were asked; DuckDB does not always tell."""
        until_s = time.monotonic() + _LOOK_S
        for path in (path for files in self._files.values() for path in files):
            try:
                pq.read_table(path, page_checksum_verification=True, partitioning=None)
            except (pa.ArrowException, OSError):
                return path
            if time.monotonic() > until_s:
                return None
        return None

    def leave_out(self, path: Path, why: str) -> None:
        """Go on without a damaged file."""
        for files in self._files.values():
            if path in files:
                files.remove(path)
        self._left_out.add(path)
        self.notes.append(f"the file {path} is damaged, and left out: {why}")


class _HistoryQuery(Query):
    """One statement over the files of a history."""

    history: History
    _lock: int | None = None

    def _open(self) -> None:
        """Start the statement; on the session's thread."""
        self._is_whole = True
        self._lock = begin_reading(self.history.root)
        self.history.list_anew()
        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._connection = connection = fresh_database(_MEMORY_MIB, threads=threads)
        _create_views(connection, self.history, self._context.sql)
        root = str(self.history.root)
        lock(connection, (f"{root}/", f"{glob.escape(root)}/"))
        self._run(connection)

    def _release(self) -> None:
        """Close the database, and let files be replaced; on the session's thread."""
        super()._release()
        lock_, self._lock = self._lock, None
        if lock_ is not None:
            os.close(lock_)

    def _step(self, function: Any) -> Any:
        """Run a step in time; a damaged file is an error of its own."""

        def checked() -> Any:
            try:
                return function()
            except _FAILURES as error:
                path = self.history.file_in(error)
                if path is None and not isinstance(error, _OF_THE_STATEMENT):
                    path = self.history.damaged_file()
                if path is None:
                    raise
                raise DamagedHistory(str(path), _reason(error, path)) from None

        return super()._step(checked)


def _create_views(connection: duckdb.DuckDBPyConnection, history: History, sql: str) -> None:
    """One view for each table that a statement may read, in its schema."""
    for schema in (SCHEMA, OWN_SCHEMA):
        connection.execute(f"CREATE SCHEMA {schema}")
    words, is_any = set(re.findall(r"\w+", sql.lower())), _READS_ANY.search(sql)
    for table in history.tables():
        is_read = is_any or table.name.lower() in words
        while True:
            files = history.files(table.name) if is_read else []
            source = _source(files) if files else None
            try:
                select = _select(connection, in_history(table), source, history.chosen)
            except duckdb.Error as error:
                path = history.file_in(error)
                if path is None:
                    raise
                history.leave_out(path, _reason(error, path))
                continue
            break
        name = f"{table.schema}.{identifier(table.name)}"
        connection.execute(f"CREATE VIEW {name} AS {select}")
    connection.execute(f"SET search_path = 'memory.{SCHEMA},memory.{OWN_SCHEMA},memory.main'")


def _source(files: Sequence[Path]) -> str:
    """The rows of some files."""
    names = ", ".join(text_literal(glob.escape(str(path))) for path in files)
    return (
        f"read_parquet([{names}], union_by_name = true, hive_partitioning = true,"
        f" hive_types = {_PARTITIONS})"
    )


def _select(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    source: str | None,
    chosen: Chosen | None,
) -> str:
    """The declared columns of a table, then others that its files have; NULL what they lack."""
    there = []
    if source is not None:
        there = [row[0] for row in connection.execute(f"DESCRIBE FROM {source}").fetchall()]
    declared = [_column(column, is_there=column.name in there) for column in table.columns]
    names = {column.name for column in table.columns}
    others = [identifier(name) for name in there if name not in names and name != "table"]
    rows = f"FROM {source}{_only(chosen)}" if source else "WHERE false"
    return " ".join(("SELECT", ", ".join([*declared, *others]), rows))


def _only(chosen: Chosen | None) -> str:
    """What keeps the rows of one run or process alone."""
    if chosen is None:
        return ""
    of_run = f" WHERE run = {text_literal(chosen.run)}"
    if chosen.rank == EVERY_RANK:
        return of_run
    rank = "NULL" if chosen.rank is None else str(chosen.rank)
    return f"{of_run} AND rank IS NOT DISTINCT FROM {rank}"


def _column(column: Column, *, is_there: bool) -> str:
    """A column in the list of a SELECT."""
    name = identifier(column.name)
    return name if is_there else f"{literal(column, None)} AS {name}"


def _message(error: BaseException) -> str:
    """What DuckDB says."""
    text = str(error)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text[text.index("{") :])["exception_message"])
    return text


def _reason(error: BaseException, path: Path) -> str:
    """What DuckDB says of a file, without its name."""
    text = _message(error)
    for name in (f"file '{path}'", f'file "{path}"', f"'{path}'", f'"{path}"', str(path)):
        text = text.replace(name, "it")
    return " ".join(text.split()).rstrip(".")
