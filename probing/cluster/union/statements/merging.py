"""Statements whose aggregates are computed in parts on the ranks.

Rules of this file: a statement of keys and aggregates over one table becomes two: one that every
rank (or node) answers with a row for each of its keys, and one that merges those rows. What is not
certain to give the same answer is refused (None), and its rows are moved instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....sql.process_columns import added_columns
from ....tables import Table
from .aggregates import Halves, halves_of
from .leaves import PARTIALS, Leaf, Plan
from .statement import Single
from .syntax import (
    SIMPLE,
    Tree,
    bare,
    column_names,
    conjuncts,
    function_name,
    parts_of,
    replaced,
    same_as,
)

_FROM = f"probing.{PARTIALS}"
TypesOf = Callable[[Sequence[str], Table], Sequence[str]]


class _Refused(Exception):
    """The statement cannot be computed in parts."""


def merge_plan(one: Single, names: Sequence[str], types_of: TypesOf) -> Plan | None:
    """The plan of a statement whose aggregates can be computed in parts; None where they cannot.

    Args:
        names: The columns of its answer.
        types_of: Tells the types of aggregates over the table.
    """
    try:
        return _Merge(one, types_of).plan(names)
    except _Refused:
        return None


class _Merge:
    """One statement on its way to two."""

    def __init__(self, one: Single, types_of: TypesOf) -> None:
        self._one = one
        self._types_of = types_of
        self._items: list[str] = []
        self._calls: dict[str, Tree] = {}
        self._means: list[str] = []
        self._keys = {same_as(key): f"k{i}" for i, key in enumerate(self._grouped())}

    def plan(self, names: Sequence[str]) -> Plan:
        """Both statements."""
        one, node = self._one, self._one.node
        where = node.get("where_clause")
        if one.is_distinct or (where is not None and not one.is_pushable(where)):
            raise _Refused
        if where is not None and column_names(where) & one.names.keys():
            raise _Refused
        keys = [one.syntax.expression_text(bare(key)) for key in self._grouped()]
        self._items = [f"{text} AS k{i}" for i, text in enumerate(keys)]
        self._prepare_calls()
        root = self._root(names)
        read: set[str] = set().union(*(column_names(tree) for tree in self._read(where)))
        added = {column.name for column in added_columns(one.table)}
        leaf = Leaf(
            table=one.table,
            columns=tuple(c.name for c in one.table.columns if c.name.lower() in read),
            items=tuple(self._items),
            where=one.syntax.expression_text(bare(where)) if where else None,
            tail=f"GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else "",
            choices=choices_of(one, where),
            reads_added=bool(read & added),
        )
        return Plan(leaves=(leaf,), root=root, is_merged=True, pushed=("partial aggregates",))

    def _grouped(self) -> list[Tree]:
        """The keys."""
        node, one = self._one.node, self._one
        listed = list(node.get("group_expressions") or ())
        sets = node.get("group_sets") or []
        if node.get("aggregate_handling") == "FORCE_AGGREGATES":
            keys = [item for item in one.items if not any(map(self._is_call, parts_of(item)))]
            if not all(map(one.is_pushable, keys)):
                raise _Refused
            return keys
        if sets and (len(sets) != 1 or sorted(sets[0]) != list(range(len(listed)))):
            raise _Refused
        keys = []
        for expression in listed:
            key = one.resolved(expression)
            if key is None or not one.is_pushable(key):
                raise _Refused
            keys.append(key)
        return keys

    def _is_call(self, part: Tree) -> bool:
        aggregates = self._one.syntax.aggregates
        return part["class"] == "FUNCTION" and function_name(part) in aggregates

    def _read(self, where: Tree | None) -> list[Tree]:
        return [*self._grouped(), *self._calls.values(), *([where] if where else [])]

    def _prepare_calls(self) -> None:
        """Find the aggregates, and make both halves of each."""
        one, node = self._one, self._one.node
        places = [list(one.items), node.get("having"), [o["expression"] for o in one.orders]]
        for part in parts_of(places):
            if self._is_call(part):
                self._calls.setdefault(same_as(part), bare(part))
        if not self._calls:
            raise _Refused
        texts = [one.syntax.expression_text(call) for call in self._calls.values()]
        kinds = self._types_of(texts, one.table)
        self._merged: dict[str, Tree] = {}
        for (meaning, call), kind in zip(self._calls.items(), kinds, strict=True):
            inner = [part for part in parts_of(call) if part is not call]
            halves = halves_of(one.syntax, call, kind)
            if halves is None or not all(one.is_pushable(part) for part in inner):
                raise _Refused
            self._merged[meaning] = self._merge(halves, kind)

    def _merge(self, halves: Halves, kind: str) -> Tree:
        """The tree of a merged aggregate; its parts go into the ranks' statement."""
        places = []
        for text in halves.partials:
            places.append(f"p{len(self._items)}")
            self._items.append(f"{text} AS {places[-1]}")
        mean = ""
        if halves.mean is not None:
            n, average = (places[i] for i in halves.mean)
            mean = f"m{len(self._means)}"
            over = (
                f"OVER (PARTITION BY {', '.join(self._keys.values())})" if self._keys else "OVER ()"
            )
            self._means.append(f"sum({n} * {average}) {over} / sum({n}) {over} AS {mean}")
        text = f"CAST({halves.merged.format(*places, mean=mean)} AS {kind})"
        tree = self._one.syntax.expression(text)
        if tree is None:
            raise _Refused
        return tree

    def _root(self, names: Sequence[str]) -> str:
        """The statement over the ranks' rows."""
        one, node = self._one, self._one.node
        if len(names) != len(one.items):
            raise _Refused
        items = [
            {**self._over_parts(item, may_name=False), "alias": name}
            for item, name in zip(one.items, names, strict=True)
        ]
        template = one.syntax.parse(f"SELECT 1 FROM {self._source()}" + self._group_by())
        if template is None:
            raise _Refused
        new = template["statements"][0]["node"]
        new["select_list"] = items
        if node.get("having"):
            new["having"] = self._over_parts(node["having"], may_name=True)
        new["modifiers"] = [self._modifier(m) for m in node.get("modifiers") or ()]
        return one.syntax.text(template)

    def _source(self) -> str:
        """The ranks' rows, with the averages over all of them."""
        if not self._means:
            return _FROM
        return f"(SELECT {', '.join(['*', *self._means])} FROM {_FROM}) AS {PARTIALS}"

    def _group_by(self) -> str:
        if self._keys:
            return f" GROUP BY {', '.join(dict.fromkeys(self._keys.values()))}"
        return ""

    def _modifier(self, modifier: Tree) -> Tree:
        """ORDER BY over the ranks' rows; LIMIT as it is."""
        if modifier["type"] != "ORDER_MODIFIER":
            return modifier
        orders = []
        for order in modifier["orders"]:
            expression = order["expression"]
            names = {str(item.get("alias", "")).lower() for item in self._one.items} - {""}
            is_name = (
                expression["class"] == "COLUMN_REF"
                and len(expression["column_names"]) == 1
                and expression["column_names"][0].lower() in names
            )
            is_all = expression["class"] == "STAR" and not expression.get("expr")
            if is_name or is_all or expression["class"] == "CONSTANT":
                orders.append(order)
            else:
                changed = self._over_parts(expression, may_name=True)
                orders.append({**order, "expression": changed})
        return {**modifier, "orders": orders}

    def _over_parts(self, tree: Tree, *, may_name: bool) -> Tree:
        """An expression whose keys and aggregates are columns of the ranks' rows."""
        one = self._one
        if may_name and column_names(tree) & one.names.keys() & one.columns:
            raise _Refused

        def change(part: Tree) -> Tree | None:
            meaning = same_as(part)
            if meaning in self._keys:
                return one.syntax.expression(self._keys[meaning])
            if meaning in self._merged:
                return self._merged[meaning]
            if part["class"] == "COLUMN_REF":
                if may_name and str(part["column_names"][-1]).lower() in one.names:
                    return part
                raise _Refused
            if part["class"] not in SIMPLE:
                raise _Refused
            if part["class"] == "FUNCTION" and not one.syntax.is_scalar(function_name(part)):
                raise _Refused  # of a macro that aggregates, or makes several rows of one
            return None

        changed: Tree = replaced(tree, change)
        return changed


def choices_of(one: Single, where: Any) -> tuple[str, ...]:
    """The part of a condition that reads nothing but which process it is."""
    added = {column.name for column in added_columns(one.table)}
    parts = [p for p in conjuncts(where) if column_names(p) and column_names(p) <= added]
    if not parts:
        return ()
    return (" AND ".join(one.syntax.expression_text(bare(part)) for part in parts),)
