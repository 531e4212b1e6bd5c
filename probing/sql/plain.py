"""Answers in Python's own values, for those who only write them out: no pyarrow, no numpy.

Rules of this file: holds what an answer of plain types is, in the words of pyarrow, whose place it
takes: a schema of fields, batches of columns. Which types are plain is said here: those of which
DuckDB gives a Python value that has all of it. An answer with any other column comes by Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .database import IS_KNOWN, duckdb
from .engine import Engine, Query, check_types

if TYPE_CHECKING:
    from .answer import Answer

INTEGERS = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
FLOATS = frozenset({"FLOAT", "DOUBLE"})
EXACT = frozenset({"HUGEINT", "DECIMAL"})
"""Numbers that Arrow holds as decimal ones."""
TEXT, BOOLEAN, BYTES, NOTHING = "VARCHAR", "BOOLEAN", "BLOB", '"NULL"'
_PLAIN = INTEGERS | FLOATS | EXACT | {TEXT, BOOLEAN, BYTES, NOTHING}
_ARGUMENTS = re.compile(r"\([\d,\s]*\)$")
_BATCH_ROWS = 8192


class PlainField(NamedTuple):
    """A column of an answer: its name, and its type as DuckDB calls it, without a precision."""

    name: str
    type: str


class PlainSchema(tuple[PlainField, ...]):
    """The columns of an answer."""

    __slots__ = ()

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [field.name for field in self]


class PlainColumn(NamedTuple):
    """The values of a column; NULL is None."""

    type: str
    values: Sequence[Any]


class PlainBatch(NamedTuple):
    """Some rows, column by column."""

    columns: Sequence[PlainColumn]
    num_rows: int

    def slice(self, start: int, length: int | None = None) -> PlainBatch:
        """Some of these rows."""
        stop = self.num_rows if length is None else min(self.num_rows, start + length)
        if start == 0 and stop == self.num_rows:
            return self
        columns = [PlainColumn(column.type, column.values[start:stop]) for column in self.columns]
        return PlainBatch(columns, max(0, stop - start))


class PlainAnswer:
    """Rows that are read once, in Python's own values."""

    def __init__(self, query: PlainQuery) -> None:
        self._query = query

    @property
    def schema(self) -> PlainSchema:
        """Names and types of the columns."""
        schema: PlainSchema = self._query.schema
        return schema

    @property
    def truncated(self) -> str | None:
        """A sentence that says why rows are missing; None while the answer is whole."""
        return self._query.truncated

    def batches(self) -> Iterator[PlainBatch]:
        """The rows, piece by piece as they are computed.

        Raises:
            ProbingError: The rest cannot be had.
        """
        try:
            while (batch := self._query.read()) is not None:
                yield batch
        finally:
            self._query.close()

    def __enter__(self) -> PlainAnswer:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._query.close()


class PlainQuery(Query):
    """A statement whose rows come in Python's values where their types are plain."""

    _is_plain = False

    def answer(self) -> PlainAnswer | Answer:  # type: ignore[override]
        """As `Query.answer`."""
        self.start()
        if self._is_plain:
            return PlainAnswer(self)
        from .answer import Answer

        return Answer(self)

    def _begin_rows(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Run the statement in the way that its types ask for."""
        types = self._types_of(connection, sql)
        if types is None:
            super()._begin_rows(connection, sql)
            return
        connection.execute(sql)
        self._is_plain = True
        self.schema = PlainSchema(map(PlainField._make, types))

    def _types_of(
        self, connection: duckdb.DuckDBPyConnection, sql: str
    ) -> list[tuple[str, str]] | None:
        """The name and the type of each column; None where not all are plain, or not known."""
        if not IS_KNOWN:
            return None
        names, types, *_ = connection._bind(sql)  # noqa: SLF001
        check_types(names, types)
        bare = [_ARGUMENTS.sub("", str(each)) for each in types]
        return list(zip(names, bare, strict=True)) if _PLAIN.issuperset(bare) else None

    def _read_batch(self) -> Any:
        """The next rows out of DuckDB; on the session's thread."""
        if not self._is_plain:
            return super()._read_batch()
        connection = self._connection
        rows = connection.fetchmany(_BATCH_ROWS) if connection is not None else []
        if not rows:
            return None
        pairs = zip(self.schema, zip(*rows, strict=True), strict=True)
        return PlainBatch([PlainColumn(field.type, v) for field, v in pairs], len(rows))


def run_plain(
    engine: Engine, sql: str, *, timeout_s: float, max_rows: int | None = None
) -> PlainAnswer | Answer:
    """As `Engine.run`, with rows in Python's own values where their types allow it."""
    return engine.query(PlainQuery, sql, timeout_s, max_rows=max_rows).answer()
