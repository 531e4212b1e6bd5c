"""SQL over the tables of a process: DuckDB, one fresh database for each query.

Rules of this file: with its neighbours the only one that imports DuckDB. Never runs in a training,
but in the terminal's process or in the SQL worker. Only tables that a statement reads are
loaded, each at most once per query, so that a self-join sees one moment; only their columns
that it reads, which the planner names before anything runs. No DuckDB exception leaves it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InternalError, ProbingError, SqlError
from . import gate as sql_gate
from .database import duckdb, fresh_database, load_whole, lock
from .errors import SqlContext, translate
from .scans import Scan, TableProvider, create_views, named_in
from .session import Session
from .threads import threads_for

if TYPE_CHECKING:
    import pyarrow as pa

    from .answer import Answer

_BATCH_ROWS = 65_536
_PLAN_PREFIX = "EXPLAIN (FORMAT json)\n"

Q = TypeVar("Q", bound="Query")


class Engine:
    """Runs read-only SQL over some tables.

    Args:
        providers: The tables.
        memory_mib: What a query may use.
        tell_plan: Called with a statement's plan, as JSON, before anything is read; not for a
            statement whose plan cannot be asked for.
        threads: How many a statement over many rows may have.
    """

    def __init__(
        self,
        providers: Sequence[TableProvider],
        *,
        memory_mib: int = 512,
        max_sql_bytes: int = sql_gate.MAX_SQL_BYTES,
        tell_plan: Callable[[str], None] | None = None,
        threads: int = 1,
    ) -> None:
        self._providers = tuple(providers)
        self._max_sql_bytes = max_sql_bytes
        self._memory_mib = memory_mib
        self._tell_plan = tell_plan
        self._threads = threads

    def run(
        self,
        sql: str,
        *,
        timeout_s: float,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Answer:
        """Start a statement; the answer streams its rows as they are computed.

        Args:
            timeout_s: What planning, running and fetching may take together. The time that
                the reader of the answer takes for itself is not counted.
            max_rows: Where to cut the answer.
            max_bytes: Where to cut the answer, in bytes of Arrow data.

        Raises:
            SqlError: The statement cannot be run, is refused, or needs too much memory.
            QueryTimedOut: Its time is up.
            ProbingError: A table that it reads cannot be had.
        """
        load_whole()  # here, since a statement's time does not begin before it
        query = self.query(Query, sql, timeout_s, max_rows=max_rows, max_bytes=max_bytes)
        return query.answer()

    def query(self, kind: type[Q], sql: str, timeout_s: float, **limits: int | None) -> Q:
        """A statement that is yet to be started."""
        sql_gate.check_text(sql, self._max_sql_bytes)
        context = SqlContext(
            sql=sql,
            tables=[provider.table for provider in self._providers],
            timeout_s=timeout_s,
            memory_mib=self._memory_mib,
        )
        query = kind(self._providers, context, **limits)
        query.tell_plan, query.threads = self._tell_plan, self._threads
        return query


class Query:
    """One statement in its own database; the source of an answer."""

    def __init__(
        self,
        providers: Sequence[TableProvider],
        context: SqlContext,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._scans = [Scan(provider) for provider in providers]
        self._context = context
        self._rows_left, self._bytes_left = max_rows, max_bytes
        self._limits = (max_rows, max_bytes)
        self._rows = 0
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._session = Session(context.timeout_s, interrupt=self._interrupt, release=self._release)
        self._first: Any = None
        self._is_over = self._is_whole = False
        self.schema: Any = None
        self.truncated: str | None = None
        self.tell_plan: Callable[[str], None] | None = None
        self.threads = 1

    def answer(self) -> Answer:
        """Plan the statement and compute its first rows, so that its errors come at once."""
        self.start()
        from .answer import Answer

        return Answer(self)

    def start(self) -> None:
        """Do so, without an answer around it."""
        try:
            self._step(self._open)
            self._first = self._fetch()
        except BaseException:
            self.close()
            raise

    def read(self) -> Any:
        """The next batch, cut where a limit is reached."""
        if self._is_over:
            return None
        batch, self._first = self._first or self._fetch(), None
        kept = None if batch is None else self._cut(batch)
        self._is_over = batch is None or self.truncated is not None
        return kept if kept is not None and kept.num_rows else None

    def close(self) -> None:
        """Interrupt the statement and take the database down."""
        self._session.close()

    def _cut(self, batch: Any) -> Any:
        """The part of a batch that the limits leave."""
        rows, what = batch.num_rows, ""
        if self._rows_left is not None and rows > self._rows_left:
            rows, what = self._rows_left, f"{self._limits[0]:,} rows"
        if self._bytes_left is not None:
            size = batch.slice(0, rows).nbytes
            if size > self._bytes_left:
                rows, what = rows * self._bytes_left // size, f"{self._limits[1]:,} bytes"
        kept = batch.slice(0, rows)
        self._rows += rows
        if self._rows_left is not None:
            self._rows_left -= rows
        if self._bytes_left is not None:
            self._bytes_left -= kept.nbytes
        if what:
            self.truncated = f"The answer was cut after {self._rows:,} rows: its limit is {what}."
        return kept

    def _open(self) -> None:
        """Start the statement; on the session's thread.

        A view costs 2 ms, so only the tables that the text names get one. Where one is missing,
        all do: it may be named in a way of its own, and the error says which names are like it.
        """
        named = named_in(self._scans, self._context.sql)
        if len(named) < len(self._scans):
            try:
                self._begin(named)
            except duckdb.CatalogException:
                self._release()
            else:
                return
        self._is_whole = True
        self._begin(self._scans)

    def _begin(self, scans: Sequence[Scan]) -> None:
        """Build the database, and start the statement in it."""
        for scan in scans:
            scan.threads = self.threads
        threads = threads_for(self._context.sql, scans, self.threads)
        connection = fresh_database(self._context.memory_mib, threads=threads)
        self._connection = connection
        create_views(connection, scans, self._context.sql)
        lock(connection)
        self._run(connection)

    def _run(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Check the statement and start it, in a database that has the tables and is locked."""
        sql = self._context.sql
        if sql_gate.check_statements(_kinds(connection, sql), sql):
            self._plan(connection, sql)
        elif (inner := sql_gate.explained(sql)) != sql and sql_gate.check_statements(
            _kinds(connection, inner), inner
        ):
            self._plan(connection, inner)
        self._begin_rows(connection, sql)

    def _begin_rows(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Have the rows computed, as Arrow."""
        relation = relation_of(connection, sql)
        self._reader = relation.to_arrow_reader(_BATCH_ROWS)
        self.schema = self._reader.schema

    def _plan(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        left_out = self._context.sql.removesuffix(sql)
        try:
            rows = connection.execute(_PLAN_PREFIX + sql).fetchall()
        except duckdb.Error as error:
            if isinstance(error, duckdb.CatalogException) and not self._is_whole:
                raise
            context = dataclasses.replace(self._context, added=_PLAN_PREFIX, left_out=left_out)
            raise translate(error, context) from None
        plan = str(rows[0][1])
        sql_gate.check_plan(plan, sql)
        if self.tell_plan is not None:
            self.tell_plan(plan)
        columns = sql_gate.planned_columns(plan)
        if columns is not None:
            for scan in self._scans:
                scan.columns = columns.get(scan.name, frozenset())

    def _fetch(self) -> Any:
        return self._step(self._read_batch)

    def _read_batch(self) -> Any:
        """The next batch out of DuckDB; on the session's thread."""
        if self._reader is None:
            return None
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            if batch.num_rows:
                return batch

    def _step(self, function: Any) -> Any:
        """Run a step in time, and turn what DuckDB raises into our errors."""
        try:
            return self._session.call(function)
        except ProbingError:
            raise
        except _foreign_errors() as error:
            failed = next((scan.error for scan in self._scans if scan.error is not None), None)
            raise (failed or translate(error, self._context)) from None

    def _interrupt(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()

    def _release(self) -> None:
        """Close the database; on the session's thread."""
        self._reader = self._first = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _foreign_errors() -> tuple[type[BaseException], ...]:
    arrow = sys.modules.get("pyarrow")
    ours = (duckdb.Error, OSError, MemoryError, RuntimeError)
    return ours if arrow is None else (*ours, arrow.ArrowException)


def relation_of(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    """The rows of a statement, of which none is computed yet.

    Raises:
        InternalError: It has none.
        SqlError: A column of them has no type of Arrow's.
    """
    load_whole()
    relation = connection.sql(sql)
    if relation is None:
        raise InternalError("the statement gave no rows")
    check_types(relation.columns, relation.types)
    return relation


def check_types(names: Sequence[str], types: Sequence[Any]) -> None:
    """Refuse what would come out as another number: Arrow has no unsigned integer of 128 bits.

    Raises:
        SqlError: An answer has such a column.
    """
    for name, kind in zip(names, types, strict=True):
        if "UHUGEINT" in str(kind):
            raise SqlError(
                f"the column {name} is of type UHUGEINT, which an answer cannot hold: cast it to"
                " VARCHAR or DOUBLE"
            )


def _kinds(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    try:
        return [statement.type.name for statement in connection.extract_statements(sql)]
    except (ValueError, TypeError):  # a kind that the Python side of DuckDB has no name for
        return ["UNKNOWN"]
