"""A statement over the tables of a history, said in the SQL of another engine.

Rules of this file: sqlglot reads and writes SQL. Each table of a history becomes a subquery over
what the engine has of its files, with the columns that DuckDB shows: those that are declared, NULL
where no file has them, and the others of the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp

from ...errors import SqlError, SqlRefused
from ...messages.frozen import dataclass
from ...sql.process_columns import literal
from ...sql.quoting import identifier
from ...tables import OWN_SCHEMA, SCHEMA, Table
from ..scanning.source import PARTITIONS
from ..tables import in_history

_SCHEMAS = ("", SCHEMA, OWN_SCHEMA)


@dataclass(frozen=True, slots=True)
class Rows:
    """What an engine has of a table.

    Attributes:
        name: What it calls it.
        columns: Those of the files; none where the table has no file, and the rows are another's.
    """

    name: str
    columns: Sequence[str]


_DIALECTS: Mapping[str, str] = {"spark": "spark", "daft": "", "ray": ""}
"""What sqlglot calls their SQL; that of Daft, which Ray runs, is nobody's."""
_QUOTED = frozenset({"spark"})
"""Those in whose SQL each name is quoted, since more words are reserved there."""
_OF_DECIMALS = frozenset({"daft", "ray"})
"""Those that take numbers such as 1e3 for decimals."""


def tables_in(sql: str, tables: Mapping[str, Table]) -> frozenset[str]:
    """The tables of a history that a statement reads.

    Args:
        tables: All of the history, by their names.

    Raises:
        SqlRefused: It is not one SELECT.
        SqlError: It cannot be read, or asks a table that is not there.
    """
    return frozenset(table.name for _, table in _found(_read(sql), tables))


def said_for(
    engine: str, sql: str, tables: Mapping[str, Table], rows: Mapping[str, Rows], only: str
) -> str:
    """The statement as an engine reads it.

    Args:
        tables: All of the history, by their names.
        rows: What the engine has of those that it reads.
        only: What stands behind FROM, to keep the rows of one run; nothing for all rows.

    Raises:
        SqlError, SqlRefused: As `tables_in`.
    """
    tree = _read(sql)
    for node, table in _found(tree, tables):
        select = sqlglot.parse_one(_select(table, rows[table.name], only), read="duckdb")
        node.replace(_as_subquery(node, select))
    for column in tree.find_all(exp.Column):
        column.set("db", None)
    if engine in _OF_DECIMALS:
        _write_floats(tree)
    try:
        return str(
            tree.sql(
                dialect=_DIALECTS[engine],
                identify=engine in _QUOTED,
                unsupported_level=sqlglot.ErrorLevel.RAISE,
            )
        )
    except sqlglot.errors.UnsupportedError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise SqlError(f"{engine} has no SQL for the statement: {reason}") from None


def _found(tree: exp.Expr, tables: Mapping[str, Table]) -> list[tuple[exp.Table, Table]]:
    """Each place where a statement reads a table of the history."""
    named = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    found = []
    for node in tree.find_all(exp.Table):
        if not node.db and node.name.lower() in named:
            continue
        table = tables.get(node.name.lower()) if isinstance(node.this, exp.Identifier) else None
        if table is None or node.db.lower() not in _SCHEMAS or node.catalog:
            raise SqlError(f"there is no table {node.sql(dialect='duckdb')} in the history")
        found.append((node, table))
    return found


def _read(sql: str) -> exp.Expr:
    """The one SELECT that a text is."""
    try:
        trees = [tree for tree in sqlglot.parse(sql, read="duckdb") if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        raise SqlError(str(error).splitlines()[0].rstrip("."), sql=sql) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlRefused("another engine is sent one SELECT", sql=sql)
    return trees[0]


def _write_floats(tree: exp.Expr) -> None:
    """Say of each number such as 1e3 that it is a float, as it is with us."""
    for node in list(tree.find_all(exp.Literal)):
        if not node.is_string and not node.this.isdigit():
            node.replace(exp.cast(node.copy(), "DOUBLE"))


def _as_subquery(node: exp.Table, select: exp.Expr) -> exp.Expr:
    """What stands where a table stood: its joins and its name stay."""
    alias = exp.TableAlias(this=exp.to_identifier(node.alias_or_name))
    subquery = exp.Subquery(this=select, alias=alias)
    for key in ("joins", "sample", "laterals", "pivots"):
        if node.args.get(key):
            subquery.set(key, node.args[key])
    return subquery


def _select(table: Table, rows: Rows, only: str) -> str:
    """The columns of a table as DuckDB shows them; in its SQL."""
    kept = in_history(table)
    names = {column.name for column in kept.columns}
    columns = []
    for column in kept.columns:
        name = identifier(column.name)
        value = literal(column, None) if column.name not in rows.columns else name
        if column.name in PARTITIONS:  # which some engines take for numbers or days
            value = f"CAST({value} AS VARCHAR)"
        columns.append(name if value == name else f"{value} AS {name}")
    others = [name for name in rows.columns if name not in names and name != "table"]
    none = "" if rows.columns else " WHERE false"
    return (
        f"SELECT {', '.join([*columns, *map(identifier, others)])}"  # noqa: S608 - our own names
        f" FROM {identifier(rows.name)}{only if rows.columns else none}"
    )
