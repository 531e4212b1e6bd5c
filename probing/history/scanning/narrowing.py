"""Which files a statement may need, by the runs, projects, jobs and days that its WHERE names.

Rules of this file: a file is passed over only where no row of it can be in the answer. Whatever is
not understood of a statement keeps all files: it is DuckDB that sorts out rows.
"""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from ..layout import shown, values_in
from .chosen import Days

_FOLDERS = ("project", "job", "day")
_RUN = "run"
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "COMPARE_EQUAL": operator.eq,
    "COMPARE_LESSTHAN": operator.lt,
    "COMPARE_LESSTHANOREQUALTO": operator.le,
    "COMPARE_GREATERTHAN": operator.gt,
    "COMPARE_GREATERTHANOREQUALTO": operator.ge,
}
_MIRRORED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}
_JOINS = ("REGULAR", "CROSS")
"""Those where a row that a condition sorts out may as well not be there; not so in ASOF."""

Tree = dict[str, Any]


class Span(NamedTuple):
    """Where all rows of a run are: of a project and a job, as rows have them, on some days."""

    project: str | None
    job: str | None
    days: Days

    def may_have(self, folders: Mapping[str, str | None]) -> bool:
        """Whether rows of it may be in a file, by what its folders say."""
        is_its = (self.project, self.job) == (folders["project"], folders["job"])
        return is_its and (folders["day"] or "") in self.days


class Narrowing:
    """What a statement says of the files of its tables.

    Args:
        tree: The statement, as DuckDB has parsed it; None where it could not.

    Attributes:
        runs: The runs that conditions name.
        spans: Where these are, once it is known; of one that is not in it nothing is known.
    """

    def __init__(self, tree: Tree | None) -> None:
        self.spans: dict[str, list[Span]] = {}
        self.runs: set[str] = set()
        self._conditions: dict[str, list[_Condition | None]] = {}
        if tree is not None:
            self._look(tree, set())

    def needed(self, table: str, files: Sequence[str]) -> list[str]:
        """The files of a table that may have rows of the answer: all, where nothing is known."""
        found = self._conditions.get(table.lower(), [None])
        return [
            file
            for file in files
            for folders in [_said_by_folders(file)]
            if any(one is None or one.may_hold(one.where, folders, self.spans) for one in found)
        ]

    def _look(self, node: object, seen: set[int]) -> None:
        """Find the tables that are read, and the conditions on each."""
        if isinstance(node, list):
            for part in node:
                self._look(part, seen)
        if not isinstance(node, dict):
            return
        if node.get("type") == "SELECT_NODE":
            for table, condition in _conditions_of(node):
                seen.add(id(table))
                self._note(table, condition)
                self.runs.update(condition.runs(condition.where))
        elif node.get("type") == "BASE_TABLE" and id(node) not in seen:
            self._note(node, None)
        for part in node.values():
            self._look(part, seen)

    def _note(self, table: Tree, condition: _Condition | None) -> None:
        self._conditions.setdefault(str(table.get("table_name")).lower(), []).append(condition)


class _Condition(NamedTuple):
    """The WHERE of a SELECT, for one of the tables that it reads.

    Attributes:
        names: What the table is called there, in small letters.
        plain: The columns that are the table's where no table is named before them.
    """

    where: Tree
    names: frozenset[str]
    plain: frozenset[str]

    def may_hold(
        self, part: Tree, folders: Mapping[str, str | None], spans: Mapping[str, list[Span]]
    ) -> bool:
        """Whether a part may be true of rows in such folders; true where one cannot tell."""
        kind, parts = str(part.get("type")), part.get("children") or ()
        if kind == "CONJUNCTION_AND":
            return all(self.may_hold(one, folders, spans) for one in parts)
        if kind == "CONJUNCTION_OR":
            return any(self.may_hold(one, folders, spans) for one in parts)
        found = self._compared(part)
        if found is None:
            return True
        column, how, texts = found
        if column != _RUN:
            value = folders[column]
            return value is not None and any(how(value, text) for text in texts)
        if how is not operator.eq:
            return True
        return any(
            text not in spans or any(span.may_have(folders) for span in spans[text])
            for text in texts
        )

    def runs(self, part: Tree) -> Iterator[str]:
        """The runs that a part names."""
        if str(part.get("type")).startswith("CONJUNCTION"):
            for one in part.get("children") or ():
                yield from self.runs(one)
        found = self._compared(part)
        if found is not None and found[0] == _RUN and found[1] is operator.eq:
            yield from found[2]

    def _compared(self, part: Tree) -> tuple[str, Callable[[str, str], bool], list[str]] | None:
        """The column that is compared, how, and with which texts: one of these must do."""
        kind = str(part.get("type"))
        if kind == "COMPARE_IN":
            first, *others = part.get("children") or (None,)
            column, texts = self._column(first), [_text(one) for one in others]
            known = [text for text in texts if text is not None]
            is_whole = column is not None and texts and len(known) == len(texts)
            return (str(column), operator.eq, known) if is_whole else None
        if kind not in _COMPARISONS:
            return None
        left, right = part.get("left"), part.get("right")
        if self._column(left) is None:
            left, right, kind = right, left, _MIRRORED.get(kind, kind)
        column, text = self._column(left), _text(right)
        return None if column is None or text is None else (column, _COMPARISONS[kind], [text])

    def _column(self, part: object) -> str | None:
        """The column of the table that a part is, if it is one that folders or runs say."""
        if not isinstance(part, dict) or part.get("type") != "COLUMN_REF":
            return None
        *before, name = [str(one).lower() for one in part.get("column_names") or ("",)]
        is_its = before[-1] in self.names if before else name in self.plain
        return name if is_its and (name in _FOLDERS or name == _RUN) else None


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Tree | None:
    """A statement as DuckDB has parsed it; None where it says nothing of it."""
    with contextlib.suppress(duckdb.Error, ValueError, TypeError):
        found = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        tree = json.loads(str(found[0])) if found else None
        if isinstance(tree, dict) and not tree.get("error"):
            return tree
    return None


def _conditions_of(select: Tree) -> Iterator[tuple[Tree, _Condition]]:
    """The tables that a SELECT reads itself, whose rows its WHERE sorts out."""
    where = select.get("where_clause")
    if not isinstance(where, dict) or select.get("sample"):  # a sample is taken before WHERE
        return
    joins: list[Tree] = []
    tables = list(_tables_of(select.get("from_table"), joins))
    used = [{str(one).lower() for one in join.get("using_columns") or ()} for join in joins]
    for table in tables:
        own = {_RUN, *_FOLDERS}
        plain = own if len(tables) == 1 else own.intersection(*used)
        name = str(table.get("alias") or table.get("table_name")).lower()
        yield table, _Condition(where, frozenset({name}), frozenset(plain))


def _tables_of(node: object, joins: list[Tree]) -> Iterator[Tree]:
    """The tables that are joined; adds the joins to `joins`."""
    if not isinstance(node, dict):
        return
    if node.get("type") == "BASE_TABLE":
        if not node.get("sample") and not node.get("column_name_alias"):
            yield node
    elif node.get("type") == "JOIN" and node.get("ref_type") in _JOINS:
        joins.append(node)
        yield from _tables_of(node.get("left"), joins)
        yield from _tables_of(node.get("right"), joins)


def _text(part: object) -> str | None:
    """The text that a part is; None of anything else."""
    if not isinstance(part, dict) or part.get("type") != "VALUE_CONSTANT":
        return None
    literal, value = part.get("literal"), part.get("value")
    if isinstance(literal, dict):
        return str(literal["text"]) if literal.get("kind") == "STRING" else None
    if isinstance(value, dict) and not value.get("is_null"):  # as DuckDB 1 has it
        is_text = (value.get("type") or {}).get("id") == "VARCHAR"
        return str(value["value"]) if is_text else None
    return None


def _said_by_folders(file: str) -> dict[str, str | None]:
    """What rows of a file have in the columns that folders say."""
    said = values_in(file)
    return {column: shown(said[column]) if column in said else None for column in _FOLDERS}
