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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import DamagedHistory, NoHistory
from ..sql import gate as sql_gate
from ..sql.answer import Answer
from ..sql.database import fresh_database, lock
from ..sql.engine import Query
from ..sql.errors import SqlContext
from ..tables import OWN_SCHEMA, SCHEMA, TABLES_BY_NAME, Column, Table
from .export import history_folder
from .layout import files_of
from .tables import HISTORY_TABLES, KEPT_TABLES, in_history

_MEMORY_MIB = 1024
_MOST_THREADS = 4
_TYPES = {"int64": "BIGINT", "time": "BIGINT", "float64": "DOUBLE", "bool": "BOOLEAN"}
_PARTITIONS = "{'project': VARCHAR, 'job': VARCHAR, 'table': VARCHAR, 'day': VARCHAR}"
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
    """A folder of runs, to be asked.

    Args:
        place: The folder.
        notes: Gets sentences about what was left out.

    Raises:
        UsageError: It is no folder.
        NoHistory: There is nothing in it.
    """

    def __init__(self, place: str, notes: list[str] | None = None) -> None:
        self.root = history_folder(place)
        self.notes = notes if notes is not None else []
        if not self.root.is_dir():
            raise NoHistory(place, "there is no such folder")
        self._files: dict[str, list[Path]] = {}
        try:
            for table, path in files_of(self.root):
                self._files.setdefault(table, []).append(path)
        except OSError as error:
            raise NoHistory(place, error.strerror or "it cannot be read") from None
        if not self._files:
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

    def tables(self) -> Mapping[Table, Sequence[Path]]:
        """Every table with its files; one that a newer version has exported is as its files are."""
        known = {table.name: table for table in (*HISTORY_TABLES, *KEPT_TABLES)}
        found = {table: self._files.get(table.name, []) for table in known.values()}
        for name in self._files.keys() - known.keys():
            table = TABLES_BY_NAME.get(name)
            found[table or Table(name=name, doc="", kind="recorded", columns=())] = self._files[
                name
            ]
        return found

    def damaged_file(self, sql: str) -> Path | None:
        """The first damaged file of a table that a statement names; DuckDB does not tell which."""
        words, until_s = _words(sql), time.monotonic() + _LOOK_S
        for table, files in self.tables().items():
            for path in files if table.name.lower() in words else ():
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
        self.notes.append(f"the file {path} is damaged, and left out: {why}")


class _HistoryQuery(Query):
    """One statement over the files of a history."""

    history: History

    def _open(self) -> None:
        """Start the statement; on the session's thread."""
        self._is_whole = True
        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._connection = connection = fresh_database(_MEMORY_MIB, threads=threads)
        _create_views(connection, self.history, self._context.sql)
        root = str(self.history.root)
        lock(connection, (f"{root}/", f"{glob.escape(root)}/"))
        self._run(connection)

    def _step(self, function: Any) -> Any:
        """Run a step in time; a damaged file is an error of its own."""

        def checked() -> Any:
            try:
                return function()
            except _FAILURES as error:
                path = _file_in(error, self.history)
                if path is None and not isinstance(error, _OF_THE_STATEMENT):
                    path = self.history.damaged_file(self._context.sql)
                if path is None:
                    raise
                raise DamagedHistory(str(path), _reason(error, path)) from None

        return super()._step(checked)


def _create_views(connection: duckdb.DuckDBPyConnection, history: History, sql: str) -> None:
    """One view for each table that a statement may read, in its schema."""
    for schema in (SCHEMA, OWN_SCHEMA):
        connection.execute(f"CREATE SCHEMA {schema}")
    words = _words(sql)
    for table, files in history.tables().items():
        is_named = table.name.lower() in words
        while True:
            source = _source(files) if files and is_named else None
            try:
                select = _select(connection, in_history(table), source)
            except duckdb.Error as error:
                path = _file_in(error, history)
                if path is None:
                    raise
                history.leave_out(path, _reason(error, path))
                continue
            break
        name = f"{table.schema}.{_quoted(table.name)}"
        connection.execute(f"CREATE VIEW {name} AS {select}")
    connection.execute(f"SET search_path = 'memory.{SCHEMA},memory.{OWN_SCHEMA},memory.main'")


def _words(sql: str) -> set[str]:
    """The names that a statement can have in it."""
    return set(re.findall(r"\w+", sql.lower()))


def _source(files: Sequence[Path]) -> str:
    """The rows of some files."""
    names = ", ".join(_literal(glob.escape(str(path))) for path in files)
    return (
        f"read_parquet([{names}], union_by_name = true, hive_partitioning = true,"
        f" hive_types = {_PARTITIONS})"
    )


def _select(connection: duckdb.DuckDBPyConnection, table: Table, source: str | None) -> str:
    """The declared columns of a table, then others that its files have; NULL what they lack."""
    there = []
    if source is not None:
        there = [row[0] for row in connection.execute(f"DESCRIBE FROM {source}").fetchall()]
    declared = [_column(column, is_there=column.name in there) for column in table.columns]
    names = {column.name for column in table.columns}
    others = [_quoted(name) for name in there if name not in names and name != "table"]
    rows = f"FROM {source}" if source else "WHERE false"
    return " ".join(("SELECT", ", ".join([*declared, *others]), rows))


def _column(column: Column, *, is_there: bool) -> str:
    """A column in the list of a SELECT."""
    kind = _TYPES.get(column.type, "VARCHAR")
    value = f'CAST("{column.name}" AS {kind})' if is_there else f"CAST(NULL AS {kind})"
    return f'"{column.name}"' if is_there else f'{value} AS "{column.name}"'


def _file_in(error: BaseException, history: History) -> Path | None:
    """The file of the history that an error is about."""
    text = _message(error)
    found = (path for files in history.tables().values() for path in files if str(path) in text)
    return next(found, None)


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
