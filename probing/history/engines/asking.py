"""Asks another engine a statement over the files of a history.

Rules of this file: files are kept from being replaced meanwhile, as for a statement of ours, and it
is asked again where nothing keeps them; an engine is started after the statement is sure to make
sense. The answer is all of its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from ...errors import (
    DamagedHistory,
    HistoryBusy,
    MissingLibrary,
    ProbingError,
    UsageError,
)
from ...sql import gate
from ...tables import Table
from ..query import History, again_if_replaced
from ..scanning.chosen import rows_chosen
from ..scanning.source import Source
from ..stores.address import is_url
from ..stores.objects import unreachable
from ..tables import PROCESSES
from . import s3
from .quiet import line_of_engine, not_taken


class Engine(Protocol):
    """Another engine that can read the files of a history.

    Attributes:
        failures: What it raises over a statement or a file.
        passing: Those of them that are of a store which gives no answer.
    """

    failures: tuple[type[Exception], ...]
    passing: tuple[type[Exception], ...]

    def open(self, name: str, files: Sequence[str]) -> list[str]:
        """Make the rows of some files a table of that name; returns its columns."""

    def ask(self, sql: str, most: int | None) -> pa.Table:
        """The rows of a statement in its own SQL, no more than so many."""

    def close(self) -> None:
        """Let go of it."""


def ask(history: History, engine: str, sql: str, *, max_rows: int | None = None) -> pa.Table:
    """The answer of an engine to a statement, which is of our dialect.

    Args:
        engine: One of `ENGINES`.
        max_rows: Where to cut the answer.

    Raises:
        UsageError: The engine does not read such a place, or does not start.
        MissingLibrary: It is not installed.
        SqlError: The engine does not take the statement, as that is said in its SQL.
        DamagedHistory: A file is damaged.
        StoreUnreachable: The store gives no answer, or there are no credentials for it.
        HistoryBusy: Files that it reads were replaced, again and again.
    """
    gate.check_text(sql)
    name = history.source.name
    if is_url(name) and not name.startswith(s3.KIND):
        raise UsageError(
            f"{engine} is asked of a history in a folder or in S3, and {name} is neither.",
            help="The page about engines has what to type into it for a store.",
        )
    tables = {table.name: table for table in history.tables()}
    statement = _Statement(engine, sql, tables, rows_chosen(history.chosen))
    end = history.source.begin()
    try:
        with contextlib.closing(started(engine, history.source)) as asked:
            return again_if_replaced(lambda: _answer(asked, statement, history, max_rows))
    finally:
        end()


def _answer(asked: Engine, statement: _Statement, history: History, most: int | None) -> pa.Table:
    """The rows of a statement over the files that are there now.

    Raises:
        HistoryBusy: They were replaced meanwhile.
        ProbingError: See `ask`.
    """
    history.list_anew()
    files = {name: history.files(name) for name in (*statement.tables, PROCESSES.name)}
    try:
        columns = {name: asked.open(name, one) for name, one in files.items() if one}
        return asked.ask(statement.said(columns), most)
    except ProbingError:
        raise
    except asked.failures as error:
        raise _told(error, asked, statement.engine, history) from None


class _Statement:
    """A statement, to be said in the SQL of an engine.

    Raises:
        MissingLibrary: Nothing that could say it is installed.
        SqlError, SqlRefused: It makes no sense.
    """

    def __init__(self, engine: str, sql: str, tables: Mapping[str, Table], only: str) -> None:
        try:
            from . import statement
        except ModuleNotFoundError:
            raise MissingLibrary("probing-agent[engines]") from None
        self._statement = statement
        self.engine, self._sql, self._known, self._only = engine, sql, tables, only
        self.tables = statement.tables_in(sql, tables)

    def said(self, columns: Mapping[str, Sequence[str]]) -> str:
        """As the engine reads it.

        Args:
            columns: Those of each table that has files; who processes were is one of these.
        """
        rows = {
            name: self._statement.Rows(
                name if name in columns else PROCESSES.name, columns.get(name, ())
            )
            for name in self.tables
        }
        return self._statement.said_for(self.engine, self._sql, self._known, rows, self._only)


def started(engine: str, source: Source) -> Engine:
    """An engine.

    Raises:
        MissingLibrary: It is not installed.
        UsageError: It does not start, or cannot read such a place.
        StoreUnreachable: There are no credentials for the store.
    """
    try:
        if engine == "spark":
            from .spark import Spark

            return Spark(source)
        if engine == "ray":
            from .ray import Ray

            return Ray(source)
        from .daft import Daft

        return Daft(source)
    except ModuleNotFoundError as error:
        raise MissingLibrary("pyspark" if engine == "spark" else (error.name or engine)) from None


def _told(error: BaseException, asked: Engine, engine: str, history: History) -> ProbingError:
    """What is told of what an engine raises."""
    name = history.source.name
    if not history.are_there():
        return HistoryBusy(f"files of the history {name} are put together")
    if is_url(name) and isinstance(error, asked.passing):
        return unreachable(name, f"{engine} says {line_of_engine(error)}")
    path = history.damaged_file()
    if path is not None:
        return DamagedHistory(path, f"{engine} cannot read it")
    return not_taken(engine, error)
