"""A statement over a single table, taken apart.

Rules of this file: it says what stands where in a statement of one SELECT over one table, and
refuses (None) every statement of another form. Names are resolved as DuckDB resolves them; where
that is in doubt, the statement is refused, too, and its rows are moved.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....messages.frozen import dataclass
from ....sql.process_columns import with_ranks
from ....tables import Table
from .syntax import Syntax, Tree, column_names, function_name, node_of, parts_of

_KNOWN = frozenset(
    {
        *("aggregate_handling", "cte_map", "from_table", "group_expressions", "group_sets"),
        *("having", "modifiers", "qualify", "sample", "select_list", "type", "where_clause"),
    }
)
_KNOWN_OF_FROM = frozenset(
    {
        *("alias", "catalog_name", "qualified_name", "query_location", "query_location_length"),
        *("schema_name", "table_name", "type"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A SELECT over one table.

    Attributes:
        name: What the statement calls the table.
        items: The select list.
        orders: The items of ORDER BY.
        limit: The most rows it gives, those of its OFFSET included; None without a limit.
        names: The aliases of the select list that are not those of the very column.
    """

    syntax: Syntax
    table: Table
    name: str
    node: Tree
    items: tuple[Tree, ...]
    orders: tuple[Tree, ...]
    is_distinct: bool
    limit: int | None
    names: Mapping[str, Tree]

    @property
    def columns(self) -> frozenset[str]:
        """All columns of the table, the three added ones among them."""
        return frozenset(column.name.lower() for column in with_ranks(self.table).columns)

    def is_pushable(self, expression: Tree) -> bool:
        """Whether a rank can compute an expression of columns, and it means the same there."""
        return (
            self.syntax.is_steady(expression)
            and not any(self._is_aggregate(part) for part in parts_of(expression))
            and all(self._is_own(part) for part in parts_of(expression))
        )

    def has_aggregates(self) -> bool:
        """Whether rows are put together."""
        node = self.node
        values = [node["select_list"], node.get("having"), list(self.orders)]
        return (
            bool(node.get("group_expressions") or node.get("group_sets"))
            or node.get("aggregate_handling") == "FORCE_AGGREGATES"  # of GROUP BY ALL
            or any(
                self._is_aggregate(part) or part["class"] == "WINDOW" for part in parts_of(values)
            )
        )

    def knows_functions(self) -> bool:
        """Whether it is known of all functions that they are aggregates, or give a value a row."""
        return all(
            self._is_aggregate(part) or self.syntax.is_scalar(function_name(part))
            for part in parts_of(self.node)
            if part["class"] == "FUNCTION"
        )

    def resolved(self, expression: Tree) -> Tree | None:
        """What an item of GROUP BY or ORDER BY stands for: a place, a name or itself."""
        place = _whole(expression)
        if place is not None:
            return self.items[place - 1] if 1 <= place <= len(self.items) else None
        name = _single_name(expression)
        if name is not None and name in self.names:
            return None if name in self.columns else self.names[name]
        return None if column_names(expression) & self.names.keys() else expression

    def _is_aggregate(self, part: Tree) -> bool:
        return part["class"] == "FUNCTION" and function_name(part) in self.syntax.aggregates

    def _is_own(self, part: Tree) -> bool:
        """Whether a part of an expression is no column but one of the table."""
        if part["class"] != "COLUMN_REF":
            return True
        *places, name = [str(word).lower() for word in part["column_names"]]
        return name in self.columns and (not places or places[-1] == self.name.lower())


def single(syntax: Syntax, tree: Tree, tables: Mapping[str, Table]) -> Single | None:
    """A statement taken apart; None when it is of another form.

    One with a subquery is: that may read the same table, of which it needs other rows.

    Args:
        tables: The tables of one process, by their full names.
    """
    node = node_of(tree)
    source = node.get("from_table") or {}
    if not _is_plain(node, source):
        return None
    path = [source.get("catalog_name"), source.get("schema_name"), source.get("table_name")]
    table = tables.get(".".join(str(word) for word in path if word).lower())
    changed = _modifiers(node)
    if table is None or changed is None:
        return None
    orders, is_distinct, limit = changed
    items = tuple(node["select_list"])
    return Single(
        syntax=syntax,
        table=table,
        name=source.get("alias") or table.name,
        node=node,
        items=items,
        orders=orders,
        is_distinct=is_distinct,
        limit=limit,
        names={
            str(item["alias"]).lower(): item
            for item in items
            if item.get("alias") and _single_name(item) != str(item["alias"]).lower()
        },
    )


def _is_plain(node: Tree, source: Tree) -> bool:
    """Whether there is nothing in a query that is not understood here."""
    ctes = (node.get("cte_map") or {}).get("map")
    return (
        node.get("type") == "SELECT_NODE"
        and source.get("type") == "BASE_TABLE"
        and not ctes
        and not any(node.get(name) for name in ("qualify", "sample"))
        and not any(value for name, value in node.items() if name not in _KNOWN)
        and not any(value for name, value in source.items() if name not in _KNOWN_OF_FROM)
        and all(part["class"] != "SUBQUERY" for part in parts_of(node))
    )


def _modifiers(node: Tree) -> tuple[tuple[Tree, ...], bool, int | None] | None:
    """ORDER BY, DISTINCT and LIMIT; None when they are not understood."""
    orders: tuple[Tree, ...] = ()
    is_distinct, limit = False, None
    for modifier in node.get("modifiers") or ():
        kind = modifier["type"]
        if kind == "ORDER_MODIFIER":
            orders = tuple(modifier["orders"])
        elif kind == "DISTINCT_MODIFIER" and not modifier.get("distinct_on_targets"):
            is_distinct = True
        elif kind == "LIMIT_MODIFIER" and modifier.get("limit_type", "ROW_COUNT") == "ROW_COUNT":
            most = _whole(modifier.get("limit"))
            skipped = _whole(modifier["offset"]) if modifier.get("offset") else 0
            if most is None or skipped is None:
                return None
            limit = most + skipped
        else:
            return None
    return orders, is_distinct, limit


def _whole(expression: Tree | None) -> int | None:
    """The value of a whole number that stands alone."""
    if expression is None or expression["class"] != "CONSTANT":
        return None
    literal = expression.get("literal")
    if literal is not None:
        text = str(literal.get("text", ""))
        return int(text) if literal.get("kind") == "INTEGER" and text.isdigit() else None
    value = (expression.get("value") or {}).get("value")
    return value if type(value) is int else None


def _single_name(expression: Tree) -> str | None:
    """The name of a column that stands alone, without a table."""
    if expression["class"] != "COLUMN_REF" or len(expression["column_names"]) != 1:
        return None
    return str(expression["column_names"][0]).lower()
