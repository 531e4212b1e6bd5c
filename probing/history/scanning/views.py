"""The views that a statement over a history reads: one for each of its tables.

Rules of this file: only files that the statement may need are opened, as far as it says which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set as AbstractSet
from typing import Any, Protocol

import duckdb

from ...sql.process_columns import literal
from ...sql.quoting import identifier, text_literal
from ...tables import OWN_SCHEMA, SCHEMA, Column, Table
from ..tables import KEPT_TABLES, PROCESSES, in_history
from .chosen import Chosen, days_of, rows_chosen
from .failures import reason_of
from .narrowing import Narrowing, Span, parsed
from .source import Source, TornFile

MEMORY = "memory"
"""What DuckDB calls a database in memory."""
_READS_ANY = re.compile(r"query", re.IGNORECASE)
"""What a statement has in it that reads a table without naming it: `query`, `query_table`."""
_KNOWN = frozenset(table.name for table in KEPT_TABLES)
"""Tables whose columns are known without their files: no column is lost with a file."""
_FEW = 16
"""Opening so many files costs no more than finding out which of them are needed."""
_RUNS = """
SELECT run, project, job, started_ns, has_ended, exported_ns FROM {} WHERE run IN ({})
"""


class Asked(Protocol):
    """The history that a statement is asked of; see `query.History`."""

    source: Source
    chosen: Chosen | None
    catalog: str
    is_alone: bool

    def tables(self) -> tuple[Table, ...]:
        """Every table."""

    def files(self, table: str) -> list[str]:
        """The files of a table."""

    def keep(self, table: str, files: list[str]) -> None:
        """Go on with some of them."""

    def file_in(self, error: BaseException) -> str | None:
        """The file that an error of DuckDB names."""

    def leave_out(self, name: str, why: str) -> None:
        """Go on without a damaged file."""


def create_views(connection: duckdb.DuckDBPyConnection, history: Asked, sql: str) -> None:
    """One view for each table that a statement may read, in its schema."""
    catalog = identifier(history.catalog)
    if history.catalog != MEMORY:
        connection.execute(f"ATTACH ':memory:' AS {catalog}")
    for schema in (SCHEMA, OWN_SCHEMA):
        connection.execute(f"CREATE SCHEMA {catalog}.{schema}")
    words, is_any = set(re.findall(r"\w+", sql.lower())), bool(_READS_ANY.search(sql))
    tables = history.tables()
    read = {one.name for one in tables if is_any or one.name.lower() in words}
    if not is_any and history.chosen is None:
        _narrow(connection, history, sql, read & _KNOWN)
    for table in tables:
        rows = _rows(connection, history, table.name) if table.name in read else None
        select = _select(in_history(table), rows, history.chosen)
        name = f"{catalog}.{table.schema}.{identifier(table.name)}"
        connection.execute(f"CREATE VIEW {name} AS {select}")
    own = [f"{catalog}.{SCHEMA}", f"{catalog}.{OWN_SCHEMA}"] if history.is_alone else []
    path = ",".join([*own, f"{MEMORY}.main"])
    connection.execute(f"SET search_path = {text_literal(path)}")


def _rows(
    connection: duckdb.DuckDBPyConnection, history: Asked, table: str
) -> tuple[str, list[str]] | None:
    """What stands behind FROM for the rows of a table, and their columns; None without files."""
    while files := history.files(table):
        try:
            return history.source.rows(connection, table, files)
        except TornFile as torn:
            history.leave_out(torn.name, torn.reason)
        except duckdb.Error as error:
            path = history.file_in(error)
            if path is None:
                raise
            history.leave_out(path, reason_of(error, path))
    return None


def _narrow(
    connection: duckdb.DuckDBPyConnection, history: Asked, sql: str, read: AbstractSet[str]
) -> None:
    """Pass over files that a statement does not need, by what its conditions say."""
    files = {name: history.files(name) for name in read}
    if sum(map(len, files.values())) <= _FEW:
        return
    narrowing = Narrowing(parsed(connection, sql))
    if narrowing.runs:
        others = sum(len(found) for name, found in files.items() if name != PROCESSES.name)
        if len(history.files(PROCESSES.name)) <= others:  # else to find the runs costs more
            narrowing.spans = _spans(connection, history, sorted(narrowing.runs))
    for name, found in files.items():
        history.keep(name, narrowing.needed(name, found))


def _spans(
    connection: duckdb.DuckDBPyConnection, history: Asked, runs: list[str]
) -> dict[str, list[Span]]:
    """Where the rows of some runs are, by what they were as of their last export."""
    rows = _rows(connection, history, PROCESSES.name)
    if rows is None:
        return {}
    names = ", ".join(map(text_literal, runs))
    found = connection.execute(_RUNS.format(rows[0], names))
    columns = [one[0] for one in found.description or ()]
    processes: dict[tuple[str, Any, Any], list[Mapping[str, Any]]] = {}
    for values in found.fetchall():
        row = dict(zip(columns, values, strict=True))
        processes.setdefault((row["run"], row["project"], row["job"]), []).append(row)
    spans: dict[str, list[Span]] = {}
    for (run, project, job), of_one in processes.items():
        spans.setdefault(run, []).append(Span(project, job, days_of(run, of_one)))
    return spans


def _select(table: Table, rows: tuple[str, list[str]] | None, chosen: Chosen | None) -> str:
    """The declared columns of a table, then others that its files have; NULL what they lack."""
    source, there = rows or ("", [])
    declared = [_column(column, is_there=column.name in there) for column in table.columns]
    names = {column.name for column in table.columns}
    others = [identifier(name) for name in there if name not in names and name != "table"]
    from_ = f"FROM {source}{rows_chosen(chosen)}" if source else "WHERE false"
    return " ".join(("SELECT", ", ".join([*declared, *others]), from_))


def _column(column: Column, *, is_there: bool) -> str:
    """A column in the list of a SELECT."""
    name = identifier(column.name)
    return name if is_there else f"{literal(column, None)} AS {name}"
