"""The three columns that tell of which process a row is.

Rules of this file: every table over many processes begins with `rank`, `host` and `pid`. A table
whose own column has one of these names keeps it, so that a statement means over many what it
means over one; the added column is then called `process_...`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from ..arrow_tables import schema_of
from ..tables import Column, Table

_ADDED = (
    Column(name="rank", type="int64", doc="The rank of the process; NULL where it has none."),
    Column(name="host", type="text", doc="The machine that the process runs on."),
    Column(name="pid", type="int64", doc="The number of the process."),
)


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


def with_ranks(table: Table) -> Table:
    """The table as it is over many processes."""
    return table._replace(columns=(*added_columns(table), *table.columns))


def added_columns(table: Table) -> tuple[Column, ...]:
    """The three columns as they are called in a table of one process."""
    own = {column.name for column in table.columns}
    return tuple(
        column._replace(name=f"process_{column.name}") if column.name in own else column
        for column in _ADDED
    )


def added_values(table: Table, member: Ranked) -> dict[str, Any]:
    """What the three columns hold in the rows of a process."""
    values = (member.rank, member.host, member.pid)
    return {c.name: value for c, value in zip(added_columns(table), values, strict=True)}


def add_columns(table: Table, member: Ranked, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows of a process, with the three added in front."""
    arrays, names = [], []
    for column, value in added_values(table, member).items():
        kind = pa.string() if column.endswith("host") else pa.int64()
        arrays.append(pa.repeat(pa.scalar(value, kind), rows.num_rows))
        names.append(column)
    arrays += [rows.column(name) for name in columns]
    return pa.Table.from_arrays(arrays, names=[*names, *columns])


def concatenated(table: Table, parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all processes in their order, in the schema of the table over many.

    Parts of one form are put together before they are changed: there may be thousands.
    """
    done = [schema_of(with_ranks(table)).empty_table()]
    for _, alike in itertools.groupby(parts, lambda part: part.schema):
        done.append(in_schema(table, pa.concat_tables(alike).unify_dictionaries()))
    return pa.concat_tables(done).unify_dictionaries()


def in_schema(table: Table, rows: pa.Table) -> pa.Table:
    """Rows with the three columns in the schema of the table over many."""
    schema = schema_of(with_ranks(table))
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
