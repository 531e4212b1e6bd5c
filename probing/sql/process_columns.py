"""The columns that tell of which process a row is.

Rules of this file: every table over many processes begins with `rank`, `host`, `pid` and `job`. A
table whose own column has one of these names keeps it, so that a statement means over many what it
means over one; the added column is then called `process_...`. Over one process a statement may name
the same columns, so that it runs over both; where it names none, the table is as it was recorded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import SqlError
from ..tables import Column, Table
from .engine import Engine
from .quoting import text_literal
from .scans import TableProvider

if TYPE_CHECKING:
    import pyarrow as pa

    from .answer import Answer
    from .plain import PlainAnswer

_ADDED = (
    Column(name="rank", type="int64", doc="The rank of the process; NULL where it has none."),
    Column(name="host", type="text", doc="The machine that the process runs on."),
    Column(name="pid", type="int64", doc="The number of the process."),
    Column(name="job", type="text", doc="What its job is called; NULL where it has no name."),
)
_NAMED = re.compile(rf"(?i)\b(process_)?({'|'.join(column.name for column in _ADDED)})\b")
_TYPES = {"int64": "BIGINT", "time": "BIGINT", "float64": "DOUBLE", "bool": "BOOLEAN"}


class Ranked(Protocol):
    """What tells one process from the others."""

    @property
    def rank(self) -> int | None:
        """Its rank."""

    @property
    def host(self) -> str:
        """Its machine."""

    @property
    def pid(self) -> int | None:
        """Its number."""

    @property
    def job(self) -> str | None:
        """Its job."""


def with_ranks(table: Table) -> Table:
    """The table as it is over many processes."""
    return table._replace(columns=(*added_columns(table), *table.columns))


def added_columns(table: Table) -> tuple[Column, ...]:
    """These columns as they are called in a table of one process."""
    own = {column.name.lower() for column in table.columns}  # as SQL compares names
    return tuple(
        [
            column._replace(name=f"process_{column.name}") if column.name in own else column
            for column in _ADDED
        ]
    )


def added_values(table: Table, member: Ranked) -> dict[str, Any]:
    """What these columns hold in the rows of a process."""
    values = (member.rank, member.host, member.pid, member.job)
    return {c.name: value for c, value in zip(added_columns(table), values, strict=True)}


def literal(column: Column, value: Any) -> str:
    """A value of a column, as SQL writes it."""
    if value is None:
        return f"CAST(NULL AS {_TYPES.get(column.type, 'VARCHAR')})"
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    return text_literal(str(value))


def add_columns(table: Table, member: Ranked, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows of a process, with the added ones in front."""
    import pyarrow as pa

    arrays, names = [], []
    values = added_values(table, member)
    for column in added_columns(table):
        kind = pa.string() if column.type == "text" else pa.int64()
        arrays.append(pa.repeat(pa.scalar(values[column.name], kind), rows.num_rows))
        names.append(column.name)
    arrays += [rows.column(name) for name in columns]
    return pa.Table.from_arrays(arrays, names=[*names, *columns])


def concatenated(table: Table, parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all processes in their order, in the schema of the table over many.

    Parts of one form are put together before they are changed: there may be thousands.
    """
    import pyarrow as pa

    from ..ring.arrow_tables import in_schema, schema_of

    schema = schema_of(with_ranks(table))
    done = [schema.empty_table()]
    for _, alike in itertools.groupby(parts, lambda part: part.schema):
        done.append(in_schema(pa.concat_tables(alike).unify_dictionaries(), schema))
    return pa.concat_tables(done).unify_dictionaries()


class OneProcess:
    """SQL over the tables of one process, which may name the columns that those of many have.

    Args:
        who: Whose tables they are; None where that is not known.
    """

    def __init__(
        self, providers: Sequence[TableProvider], who: Ranked | None, **engine: Any
    ) -> None:
        self._providers, self._who, self._engine = tuple(providers), who, engine

    def run(self, sql: str, **limits: Any) -> Answer:
        """Start a statement; see `Engine.run`."""
        answer: Answer = self._run(Engine.run, sql, limits)
        return answer

    def run_plain(self, sql: str, **limits: Any) -> PlainAnswer | Answer:
        """Start a statement; see `plain.run_plain`."""
        from .plain import run_plain

        answer: PlainAnswer | Answer = self._run(run_plain, sql, limits)
        return answer

    def _run(self, run: Callable[..., Any], sql: str, limits: dict[str, Any]) -> Any:
        """Start it over the tables as they are, or else as they are over many processes."""
        try:
            return run(Engine(self._providers, **self._engine), sql, **limits)
        except SqlError as error:
            if self._who is None or not _NAMED.search(sql):
                raise
            first = error
        providers = [_WithColumns(provider, self._who) for provider in self._providers]
        try:
            return run(Engine(providers, **self._engine), sql, **limits)
        except SqlError:
            raise first from None


class _WithColumns:
    """A table of one process as it is over many."""

    def __init__(self, provider: TableProvider, who: Ranked) -> None:
        self.table = with_ranks(provider.table)
        self._provider, self._who = provider, who

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..ring.arrow_tables import in_schema, schema_of

        own = self._provider.table
        added = {column.name for column in added_columns(own)}
        rows = self._provider.load(None if columns is None else columns - added)
        rows = add_columns(own, self._who, rows, rows.column_names)
        return in_schema(rows, schema_of(self.table))
