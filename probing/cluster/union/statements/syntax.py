"""Statements as trees, by DuckDB's own parser.

Rules of this file: a statement is taken apart and put together by the parser of the engine that
will run it (`json_serialize_sql`), in a locked database of its own, never by looking at its
text. What the trees look like differs between versions of DuckDB: that is known here alone. A
tree is changed only in a copy.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from ....sql.database import locked_database

if TYPE_CHECKING:
    from ....sql.database import duckdb

Tree: TypeAlias = dict[str, Any]

SIMPLE = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT"),
        *("FUNCTION", "OPERATOR", "TYPE"),
    }
)
"""The kinds of expressions whose value depends on the row alone, where their functions' does."""
_ZONED = re.compile(r"TIME ZONE|TIMESTAMPTZ|TIMETZ", re.IGNORECASE)
_PLACES = frozenset({"query_location", "query_location_length"})


_FUNCTIONS = """
    SELECT
      lower(function_name),
      bool_and(coalesce(stability = 'CONSISTENT', function_type = 'aggregate'))
        AND NOT coalesce(
          bool_or(function_type <> 'aggregate' AND return_type LIKE '%TIME ZONE%'), false),
      bool_or(function_type = 'aggregate'),
      bool_and(function_type = 'scalar' AND stability <> 'VOLATILE')
        FILTER (function_type IN ('aggregate', 'macro', 'scalar')),
      list(macro_definition) FILTER (function_type = 'macro')
    FROM duckdb_functions() GROUP BY ALL
"""
"""Each name, of which some are of several kinds: which of them, and its texts as a macro."""


class _Functions(NamedTuple):
    """What the engine has by name; the same in each of its databases, so looked up once.

    Attributes:
        consistent: Those that mean the same wherever and whenever their row is looked at.
        aggregates: Those that are aggregates.
        scalars: Those that give a value for each row.
        macros: The texts of each that is a macro.
    """

    consistent: frozenset[str]
    aggregates: frozenset[str]
    scalars: frozenset[str]
    macros: Mapping[str, Sequence[str]]


class Syntax:
    """The parser, and what it knows of functions; used by one thread."""

    _known: ClassVar[_Functions | None] = None

    def __init__(self) -> None:
        self._database = locked_database()
        if Syntax._known is None:
            Syntax._known = _functions_in(self._database)
        self.consistent, self.aggregates, self._scalars, self._macros = Syntax._known

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def parse(self, sql: str) -> Tree | None:
        """The tree of the one SELECT in a text; None where there is none."""
        row = self._database.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
        tree = json.loads(row[0]) if row else {}
        statements = tree.get("statements", ())
        return tree if not tree.get("error", True) and len(statements) == 1 else None

    def text(self, tree: Tree) -> str:
        """The statement of a tree."""
        row = self._database.execute(
            "SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]
        ).fetchone()
        assert row is not None  # a scalar function gives a row
        return str(row[0])

    def expression(self, sql: str) -> Tree | None:
        """The tree of an expression."""
        tree = self.parse(f"SELECT {sql}")
        node = node_of(tree) if tree else {}
        items = node.get("select_list", ())
        return items[0] if len(items) == 1 and not node.get("where_clause") else None

    def expression_text(self, expression: Tree) -> str:
        """The text of an expression, without its alias."""
        template = self.parse("SELECT 1")
        assert template is not None  # a constant statement
        node_of(template)["select_list"] = [{**expression, "alias": ""}]
        return self.text(template).removeprefix("SELECT ")

    def is_steady(self, expression: Tree) -> bool:
        """Whether an expression means the same wherever and whenever its row is looked at."""
        return all(
            part["class"] in SIMPLE
            and (part["class"] != "FUNCTION" or function_name(part) in self.consistent)
            and (part["class"] != "CAST" or not _ZONED.search(json.dumps(part)))
            for part in parts_of(expression)
        )

    def is_scalar(self, function: str) -> bool:
        """Whether a function, or a macro made of such, gives one value for each row it is given.

        One that gives another value each time is none.
        """
        texts = self._macros.get(function, ())
        return function in self._scalars or (
            bool(texts) and all(self._is_of_scalars(text, function) for text in texts)
        )

    def _is_of_scalars(self, text: str, macro: str) -> bool:
        tree = self.expression(text)
        return tree is not None and all(
            part["class"] in SIMPLE
            and (part["class"] != "FUNCTION" or self._is_scalar_in(macro, function_name(part)))
            for part in parts_of(tree)
        )

    def _is_scalar_in(self, macro: str, function: str) -> bool:
        """Some macros have the name of a function that they call."""
        return function != macro and self.is_scalar(function)

    def values(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement over constants."""
        return list(self._database.execute(sql).fetchall())


def _functions_in(database: duckdb.DuckDBPyConnection) -> _Functions:
    found = database.execute(_FUNCTIONS).fetchall()
    return _Functions(
        consistent=frozenset(name for name, is_one, *_ in found if is_one),
        aggregates=frozenset(name for name, _, is_one, *_ in found if is_one),
        scalars=frozenset(name for name, _, _, is_one, _ in found if is_one),
        macros={name: texts for name, *_, texts in found if texts},
    )


def node_of(tree: Tree) -> Tree:
    """The query of a parsed statement."""
    node: Tree = tree["statements"][0]["node"]
    return node


def parts_of(value: Any) -> Iterator[Tree]:
    """All expressions in a tree, each before what it is made of."""
    if isinstance(value, dict):
        if "class" in value:
            yield value
        for child in value.values():
            yield from parts_of(child)
    elif isinstance(value, list):
        for child in value:
            yield from parts_of(child)


def replaced(value: Any, change: Callable[[Tree], Tree | None]) -> Any:
    """A copy of a tree in which expressions are others.

    Args:
        change: Gives the expression to put in the place of one; None to go on inside of it.
    """
    if isinstance(value, dict):
        if "class" in value and (new := change(value)) is not None:
            return new
        return {name: replaced(child, change) for name, child in value.items()}
    if isinstance(value, list):
        return [replaced(child, change) for child in value]
    return value


def function_name(expression: Tree) -> str:
    """The name of the function that is called."""
    return str(expression["function_name"]).lower()


def arguments(expression: Tree) -> list[Tree]:
    """What a function is called with; DuckDB 1 calls them children."""
    listed = expression.get("arguments")
    if listed is None:
        return list(expression.get("children", ()))
    return [argument["expression"] for argument in listed]


def conjuncts(expression: Tree | None) -> list[Tree]:
    """The conditions that must all hold."""
    if expression is None:
        return []
    if expression.get("type") != "CONJUNCTION_AND":
        return [expression]
    return [part for child in expression["children"] for part in conjuncts(child)]


def column_names(expression: Tree) -> set[str]:
    """The columns that an expression reads, without their tables."""
    return {
        str(part["column_names"][-1]).lower()
        for part in parts_of(expression)
        if part["class"] == "COLUMN_REF"
    }


def bare(expression: Tree) -> Tree:
    """A copy whose columns are named without their table."""

    def change(part: Tree) -> Tree | None:
        if part["class"] != "COLUMN_REF":
            return None
        return {**part, "column_names": part["column_names"][-1:]}

    changed: Tree = replaced(copy.deepcopy(expression), change)
    return changed


def same_as(expression: Tree) -> str:
    """A text that two expressions share when they mean the same."""
    return json.dumps(_meaning(bare(expression)), sort_keys=True)


def _meaning(value: Any) -> Any:
    """A tree without its places and aliases."""
    if isinstance(value, list):
        return [_meaning(child) for child in value]
    if not isinstance(value, dict):
        return value
    kept = {n: _meaning(child) for n, child in value.items() if n not in _PLACES}
    if "class" in kept:
        kept.pop("alias", None)
    if kept.get("class") == "COLUMN_REF":
        kept["column_names"] = [name.lower() for name in kept["column_names"]]
    return kept
