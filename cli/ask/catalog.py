"""Which table a person means, and how it stands."""

from __future__ import annotations

import difflib

from ...errors import UsageError
from ...messages.common import TablesAnswer, TableStatus
from ...tables import OWN_SCHEMA, SCHEMA, TABLES_BY_NAME, Table


def find_table(name: str) -> Table:
    """The table of that name, with the schema or without.

    Raises:
        UsageError: There is none.
    """
    short = name.removeprefix(f"{SCHEMA}.").removeprefix(f"{OWN_SCHEMA}.")
    if short in TABLES_BY_NAME:
        return TABLES_BY_NAME[short]
    near = difflib.get_close_matches(short.lower(), TABLES_BY_NAME, n=1)
    hint = f" Did you mean {TABLES_BY_NAME[near[0]].full_name}?" if near else ""
    raise UsageError(
        f"there is no table {name!r}.{hint}", help="`probing ENDPOINT tables` lists all tables."
    )


def status_of(table: Table, answer: TablesAnswer) -> TableStatus:
    """How that table stands; an agent of another version may not have it."""
    unknown = TableStatus(name=table.name, kind=table.kind)
    return next((status for status in answer.tables if status.name == table.name), unknown)
