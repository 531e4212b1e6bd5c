"""Asks another engine a statement over the files of a history.

Rules of this file: files are kept from being replaced meanwhile, as for a statement of ours; an
engine is started after that is sure to make sense. The answer is all of its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ...errors import DamagedHistory, MissingLibrary, ProbingError, SqlError, UsageError
from ...sql import gate
from ...tables import Table
from ..layout import is_url
from ..query import History, rows_chosen
from ..tables import PROCESSES

_LONGEST = 300


class Engine(Protocol):
    """Another engine that can read the files of a history.

    Attributes:
        failures: What it raises over a statement or a file.
    """

    failures: tuple[type[Exception], ...]

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
        UsageError: The history is in a store, or the engine does not start.
        MissingLibrary: It is not installed.
        SqlError: The engine does not take the statement, as that is said in its SQL.
        DamagedHistory: A file is damaged.
    """
    gate.check_text(sql)
    if is_url(history.source.name):
        raise UsageError(
            f"{engine} is asked of a history in a folder, and {history.source.name} is a store.",
            help="The page about engines has what to type into it for a store.",
        )
    tables = {table.name: table for table in history.tables()}
    statement = _Statement(engine, sql, tables, rows_chosen(history.chosen))
    end = history.source.begin()
    try:
        history.list_anew()
        files = {name: history.files(name) for name in (*statement.tables, PROCESSES.name)}
        with contextlib.closing(started(engine, history.source.name)) as asked:
            try:
                columns = {name: asked.open(name, one) for name, one in files.items() if one}
                return asked.ask(statement.said(columns), max_rows)
            except ProbingError:
                raise
            except asked.failures as error:
                raise _told(error, engine, history) from None
    finally:
        end()


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
        self._engine, self._sql, self._known, self._only = engine, sql, tables, only
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
        return self._statement.said_for(self._engine, self._sql, self._known, rows, self._only)


def started(engine: str, root: str) -> Engine:
    """An engine.

    Raises:
        MissingLibrary: It is not installed.
        UsageError: It does not start.
    """
    place = str(Path(root).absolute())
    try:
        if engine == "spark":
            from .spark import Spark

            return Spark(place)
        if engine == "ray":
            from .ray import Ray

            return Ray(place)
        from .daft import Daft

        return Daft(place)
    except ModuleNotFoundError as error:
        raise MissingLibrary("pyspark" if engine == "spark" else (error.name or engine)) from None


def _told(error: BaseException, engine: str, history: History) -> ProbingError:
    """What is told of what an engine raises."""
    path = history.damaged_file()
    if path is not None:
        return DamagedHistory(path, f"{engine} cannot read it")
    line = " ".join(str(error).split())[:_LONGEST].rstrip(".")
    return SqlError(f"{engine} does not take the statement, said in its SQL: {line}")
