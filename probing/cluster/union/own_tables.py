"""The tables that the scripts of many processes have declared, each once.

Rules of this file: looked for only where a statement names a table that probing itself does not
declare, or asks which there are. Two processes may have declared one name otherwise: the table then
has the columns of all of them, and a process has NULL in those that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ...client.base import Process
from ...ring.arrow_tables import in_schema, schema_of
from ...ring.peek import own_tables
from ...tables import Table
from ..job.membership import Member
from ..job.outcomes import ask_all


def declared_by(
    members: Sequence[Member], *, timeout_s: float, token: str | None = None
) -> tuple[Table, ...]:
    """The tables that the scripts of some processes have declared."""

    def ask(process: Process, _: Member) -> tuple[Table, ...]:
        if process.folder is not None:
            return own_tables(process.folder)
        found = (one.table() for one in process.tables().tables if one.own is not None)
        return tuple(table for table in found if table is not None)

    outcomes = ask_all(members, ask, timeout_s=timeout_s, token=token)
    return merged(table for outcome in outcomes for table in outcome.value or ())


def merged(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Each table once, with the columns of all that are called so."""
    found: dict[str, Table] = {}
    for table in tables:
        there = found.setdefault(table.full_name, table)
        names = {column.name.lower() for column in there.columns}
        more = tuple(column for column in table.columns if column.name.lower() not in names)
        if more and table.kind == there.kind:
            found[table.full_name] = there._replace(columns=(*there.columns, *more))
    return tuple(found.values())


def as_declared(rows: pa.Table, table: Table) -> pa.Table:
    """The rows of a process that has declared a table otherwise; NULL is what it lacks."""
    schema = schema_of(table)
    kinds = {field.name: field.type for field in schema}
    same = [field.name for field in rows.schema if kinds.get(field.name) == field.type]
    return in_schema(rows.select(same), schema)
