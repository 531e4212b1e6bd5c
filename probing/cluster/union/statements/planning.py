"""Decides what the ranks are asked for a statement, and what runs where their rows meet.

Rules of this file: from the most that can be pushed to the least: parts of aggregates; the first
rows of an order; distinct rows; rows that fulfil a condition. Each step is taken only where it
cannot change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....sql import gate as sql_gate
from ....sql.process_columns import added_columns
from ....tables import Table
from .filters import ScanFilter, scan_filters
from .leaves import Leaf, Plan
from .merging import TypesOf, choices_of, merge_plan
from .statement import Single, single
from .syntax import Syntax, Tree, bare, column_names, conjuncts, function_name, parts_of

_NO_MATTER_HOW_OFTEN = frozenset({"bool_and", "bool_or", "max", "min"})
_DIRECTIONS = {"ASCENDING": " ASC", "DESCENDING": " DESC", "ORDER_DEFAULT": ""}
_NULLS = {
    **dict.fromkeys(("NULLS FIRST", "NULLS_FIRST"), " NULLS FIRST"),
    **dict.fromkeys(("NULLS LAST", "NULLS_LAST"), " NULLS LAST"),
    "ORDER_DEFAULT": "",
}


def make_plan(
    syntax: Syntax,
    sql: str,
    tables: Sequence[Table],
    *,
    plan: str | None,
    names: Sequence[str],
    types_of: TypesOf,
    may_merge: bool = True,
) -> Plan:
    """How to answer a statement.

    Args:
        tables: Those of one process.
        plan: DuckDB's plan of the statement over the union; None where it has none.
        names: The columns of the answer.
        types_of: Tells the types of aggregates over a table of the statement.
        may_merge: Whether aggregates may be computed in parts.
    """
    tree = syntax.parse(sql)
    if plan is None or tree is None:
        return Plan(leaves=(), root=sql)
    one = single(syntax, tree, {table.full_name.lower(): table for table in tables})
    if one is not None and may_merge and one.has_aggregates():
        merged = merge_plan(one, names, types_of)
        if merged is not None:
            return merged
    # A plan of DuckDB 1 does not tell of a scan that needs no column; the statement does.
    columns = {
        **dict.fromkeys(_tables_named(tree), frozenset[str]()),
        **(sql_gate.planned_columns(plan) or {}),
    }
    read = [table for table in tables if table.name in columns]
    if one is not None and [one.table] == read:
        return _single_plan(one, sql, columns[one.table.name])
    filters = scan_filters(syntax, plan, tree)
    leaves = [_filtered(syntax, table, columns[table.name], filters) for table in read]
    pushed = ("conditions",) if any(leaf.where for leaf in leaves) else ()
    return Plan(leaves=tuple(leaves), root=sql, pushed=pushed)


def _tables_named(tree: Tree) -> set[str]:
    """The names of all that a statement reads from, of whatever schema."""
    found: set[str] = set()
    waiting: list[Any] = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("type") == "BASE_TABLE":
                found.add(str(value.get("table_name")).lower())
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _single_plan(one: Single, sql: str, columns: frozenset[str]) -> Plan:
    """Rows of one table, only those that the answer needs."""
    where = one.node.get("where_clause")
    kept = [part for part in conjuncts(where) if _is_safe(one, part)]
    is_whole = len(kept) == len(conjuncts(where)) and one.knows_functions()
    tail, pushed, distinct = "", ["conditions"] if kept else [], False
    if is_whole and not one.has_aggregates():
        first = _first_rows(one)
        if one.is_distinct and one.limit is None:
            distinct = True
        elif first is not None and not one.is_distinct:
            tail = first
            pushed.append("the first rows of the order" if one.orders else "a number of rows")
    elif is_whole and _counts_each_once(one):
        distinct = True
    if distinct:
        pushed.append("distinct rows")
    texts = [one.syntax.expression_text(bare(part)) for part in kept]
    added = {column.name for column in added_columns(one.table)}
    needed = set().union(*map(column_names, [*kept, *(o["expression"] for o in one.orders)]))
    leaf = Leaf(
        table=one.table,
        columns=_own(one.table, columns),
        where=" AND ".join(texts) or None,
        tail=tail,
        is_distinct=distinct,
        choices=choices_of(one, where),
        reads_added=bool(needed & added),
    )
    return Plan(leaves=(leaf,), root=sql, pushed=tuple(pushed))


def _is_safe(one: Single, part: Tree) -> bool:
    """Whether a condition is one on a row of the table alone."""
    return one.is_pushable(part) and not column_names(part) & one.names.keys() - one.columns


def _first_rows(one: Single) -> str | None:
    """ORDER BY and LIMIT for a rank; None where the first rows of each are not enough.

    Each row of the table must become one in the answer.
    """
    if one.limit is None:
        return None
    orders = []
    for order in one.orders:
        expression = one.resolved(order["expression"])
        if expression is None or not one.is_pushable(expression):
            return None
        if order["type"] not in _DIRECTIONS or order["null_order"] not in _NULLS:
            return None
        text = one.syntax.expression_text(bare(expression))
        orders.append(f"{text}{_DIRECTIONS[order['type']]}{_NULLS[order['null_order']]}")
    return (f"ORDER BY {', '.join(orders)} " if orders else "") + f"LIMIT {one.limit}"


def _counts_each_once(one: Single) -> bool:
    """Whether all aggregates give the same for rows that are there once or often."""
    node, aggregates = one.node, one.syntax.aggregates
    places = [list(one.items), node.get("having"), list(one.orders)]
    for part in parts_of(places):
        if part["class"] == "WINDOW":
            return False
        if part["class"] == "FUNCTION" and function_name(part) in aggregates:
            orders = (part.get("order_bys") or {}).get("orders")
            once = part.get("distinct") or function_name(part) in _NO_MATTER_HOW_OFTEN
            if orders or not once:
                return False
    return all(part["class"] not in ("SUBQUERY", "STAR") for part in parts_of(places))


def _filtered(
    syntax: Syntax, table: Table, columns: frozenset[str], filters: Sequence[ScanFilter] | None
) -> Leaf:
    """The rows of one table that any of its scans in the plan may need."""
    scans = [scan.conditions for scan in filters or () if scan.table == table.name]
    added = {column.name for column in added_columns(table)}
    wheres, choices = [], []
    for conditions in scans:
        wheres.append(_all_of(syntax, conditions))
        choices.append(_all_of(syntax, [c for c in conditions if column_names(c) <= added]))
    where = None
    if wheres and all(wheres):
        where = " OR ".join(dict.fromkeys(f"({text})" for text in wheres))
    trees = [condition for conditions in scans for condition in conditions]
    return Leaf(
        table=table,
        columns=_own(table, columns),
        where=where,
        choices=tuple(dict.fromkeys(choices)) if choices and all(choices) else (),
        reads_added=bool(where) and any(column_names(tree) & added for tree in trees),
    )


def _all_of(syntax: Syntax, conditions: Sequence[Tree]) -> str:
    return " AND ".join(syntax.expression_text(condition) for condition in conditions)


def _own(table: Table, columns: frozenset[str]) -> tuple[str, ...]:
    """The columns to move, in their order."""
    return tuple(column.name for column in table.columns if column.name in columns)
