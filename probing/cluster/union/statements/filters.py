"""What a plan says that each scan's rows must fulfil.

Rules of this file: of what DuckDB prints of a filter that stands directly above a scan, only
conditions are taken whose meaning is certain: columns of the one table compared with constants
of the statement, alone or joined by AND and OR. The statement is run with all of its conditions
again where the rows meet, so that a condition taken here must only never drop a row too many. A
BETWEEN of a plan may stand for a comparison that excludes an end, hence it is nowhere negated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ....messages.frozen import dataclass
from .syntax import Syntax, Tree, arguments, bare, conjuncts, function_name, parts_of

_PARTS_OF_TEXT = frozenset({"contains", "prefix", "suffix", "starts_with", "ends_with"})
_MOST_DIGITS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFilter:
    """What the rows of one scan must fulfil; each item is one of the conditions.

    Attributes:
        conditions: Trees whose columns are named without their table.
    """

    table: str
    conditions: tuple[Tree, ...]


def scan_filters(syntax: Syntax, plan: str, statement: Tree) -> list[ScanFilter] | None:
    """The conditions of every scan; None when a scan does not tell its table."""
    texts = _texts_in(statement)
    found = []
    for scan, filters in _scans(json.loads(plan), []):
        listed = scan.get("Projections", [])
        names = {n.partition(".")[0] for n in ([listed] if isinstance(listed, str) else listed)}
        if len(names) != 1:
            return None
        table = names.pop()
        conditions = [
            bare(part)
            for text in filters
            for part in conjuncts(syntax.expression(text))
            if _is_certain(part, table, texts)
        ]
        found.append(ScanFilter(table=table, conditions=tuple(conditions)))
    return found


def _scans(nodes: list[Any], filters: list[str]) -> Iterator[tuple[Tree, list[str]]]:
    """The scans of a plan, with the texts of the filters directly above each."""
    for node in nodes:
        name, info = str(node.get("name", "")), node.get("extra_info") or {}
        children = list(node.get("children") or ())
        if "ARROW_SCAN" in f"{name} {info.get('Function', '')}".upper():
            yield info, filters
        elif name.strip() == "FILTER" and isinstance(info.get("Expression"), str):
            yield from _scans(children, [*filters, info["Expression"]])
        else:
            yield from _scans(children, [])


def _is_certain(part: Tree, table: str, texts: frozenset[str]) -> bool:
    """Whether the meaning of a condition is beyond doubt."""
    kind, name = part["class"], str(part.get("type"))
    children = list(part.get("children") or ())
    if kind == "CONJUNCTION":
        return all(_is_certain(child, table, texts) for child in children)
    if kind == "COMPARISON":
        return _is_column(part["left"], table) and _is_constant(part["right"], texts)
    if kind == "BETWEEN":
        ends = (part["lower"], part["upper"])
        return _is_column(part["input"], table) and all(_is_constant(end, texts) for end in ends)
    if kind == "OPERATOR" and name in {"OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_NOT"}:
        return len(children) == 1 and _is_column(children[0], table)
    if kind == "OPERATOR" and name == "COMPARE_IN":
        first, *rest = children
        return _is_column(first, table) and all(_is_constant(child, texts) for child in rest)
    if kind == "FUNCTION" and function_name(part) in _PARTS_OF_TEXT:
        inputs = arguments(part)
        found = inputs[1].get("literal", {}).get("text") if len(inputs) == 2 else None
        return isinstance(found, str) and _is_column(inputs[0], table) and _is_part(found, texts)
    return _is_column(part, table)


def _is_column(part: Tree, table: str) -> bool:
    return part["class"] == "COLUMN_REF" and bool(part["column_names"][:-1] == [table])


def _is_constant(part: Tree, texts: frozenset[str]) -> bool:
    """Whether it is a constant that is printed as it is meant."""
    if part["class"] != "CONSTANT":
        return False
    value = _constant(part)
    if isinstance(value, str):
        return value in texts
    digits = sum(map(str.isdigit, repr(value)))
    return isinstance(value, (int, float)) and digits <= _MOST_DIGITS


def _constant(part: Tree) -> object:
    """The value of a constant, as far as it is understood here."""
    literal = part.get("literal")
    if literal is not None:
        text = str(literal.get("text", ""))
        if literal.get("kind") == "STRING":
            return text
        try:
            return float(text)
        except ValueError:
            return None
    value = part.get("value") or {}
    return None if value.get("is_null") else value.get("value")


def _texts_in(statement: Tree) -> frozenset[str]:
    """All constants of a statement that are texts."""
    values = [_constant(part) for part in parts_of(statement) if part["class"] == "CONSTANT"]
    return frozenset(value for value in values if isinstance(value, str))


def _is_part(found: str, texts: frozenset[str]) -> bool:
    return any(found in text for text in texts)
