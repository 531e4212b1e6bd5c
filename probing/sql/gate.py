"""Which statements may run: exactly one, and one that only reads.

Rules of this file: it judges what the parser and the planner report, and runs nothing. It is
the first of three walls: behind it, tables are views in a read-only transaction of a database
that lives for one query, and remote queries run in a process of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import InternalError, RequestTooLarge, SqlError, SqlRefused

MAX_SQL_BYTES = 64 << 10

_COMMENT = r"/\*[^*]*(?:\*(?!/)[^*]*)*\*/"
"""Never beyond its end: what may match one in two ways tries 2^n for n of them."""
_NESTED = re.compile(r"/\*(?:(?!\*/).)*?/\*", re.DOTALL)
"""A comment within a comment, as the engine has them and the patterns here do not."""
_BLANK = rf"(?:\s|--[^\n]*(?:\n|$)|{_COMMENT})*"
_FIRST_WORD = re.compile(rf"{_BLANK}\(*{_BLANK}(\w*)", re.DOTALL)
_EXPLAIN = re.compile(
    rf"{_BLANK}explain\b{_BLANK}(?:analy[sz]e\b)?{_BLANK}"
    rf"(?:\(\s*(?:analyze|format|verbose)\b[^)]*\))?{_BLANK}",
    re.DOTALL | re.IGNORECASE,
)
_SIDE_EFFECTS = (
    r"\b((?:enable|disable)_(?:logging|profil\w*)|(?:force_)?checkpoint|truncate_duckdb_logs"
    r"|json_execute_serialized_sql)"
)
_NODE_WITH_SIDE_EFFECTS = re.compile(rf"{_SIDE_EFFECTS}\b", re.IGNORECASE)
_CALL_WITH_SIDE_EFFECTS = re.compile(rf"{_SIDE_EFFECTS}\"?{_BLANK}\(", re.IGNORECASE | re.DOTALL)
_TELLING_PRAGMA = re.compile(
    rf"{_BLANK}pragma{_BLANK}(?:table_info|show|show_tables(?:_expanded)?|database_list|version)\b",
    re.DOTALL | re.IGNORECASE,
)
"""Those that only tell what there is; any other may change the engine."""
_READING_WORDS = frozenset({"select", "from", "with", "pivot", "unpivot", "pivot_wider"})


def check_text(sql: str, limit: int = MAX_SQL_BYTES, setting: str = "") -> None:
    """Refuse what need not be parsed.

    Args:
        limit: How many bytes it may have.
        setting: Which setting says so, if one does.

    Raises:
        RequestTooLarge: The text is too long.
        SqlError: It is no text that can be encoded.
    """
    try:
        size = len(sql.encode())
    except UnicodeEncodeError as error:
        raise SqlError("the statement is not valid Unicode", sql=sql) from error
    if size > limit:
        raise RequestTooLarge("the SQL text", limit, setting)


def check_statements(kinds: Sequence[str], sql: str) -> bool:
    """Refuse all but one statement that only reads.

    Args:
        kinds: The parser's names of the statements in `sql`.

    Returns:
        Whether the statement's plan can be asked for before it runs. That of a PIVOT cannot.

    Raises:
        SqlRefused: It is not one statement, or one that writes.
    """
    word = _first_word(sql)
    if not kinds:
        raise SqlRefused("there is no statement in it", sql=sql)
    if tuple(kinds) != ("SELECT",) and _NESTED.search(sql):
        raise SqlRefused("only a plain SELECT may have a comment within a comment", sql=sql)
    if word in _READING_WORDS and tuple(kinds) in (("MULTI",), ("CREATE", "SELECT")):
        _check_function(_CALL_WITH_SIDE_EFFECTS.search(sql), sql)
        return False
    if word == "explain" and kinds[0] == "MULTI":
        raise SqlRefused("a PIVOT whose columns come from the data cannot be explained", sql=sql)
    if len(kinds) > 1:
        raise SqlRefused(f"there are {len(kinds)} statements in it, and one at a time is run")
    if word == "pragma" and _TELLING_PRAGMA.match(sql):
        return False
    if kinds[0] not in ("SELECT", "EXPLAIN") or word == "pragma":
        name = word.upper() or kinds[0].replace("_", " ")
        if word == "with":
            name = f"WITH ... {kinds[0]}"
        article = "an" if name[0] in "AEIOU" else "a"
        raise SqlRefused(f"it is {article} {name} statement, and only statements that read are run")
    return kinds[0] == "SELECT"


def explained(sql: str) -> str:
    """The statement that an EXPLAIN explains."""
    found = _EXPLAIN.match(sql)
    return sql[found.end() :] if found else sql


def check_plan(plan: str, sql: str) -> None:
    """Refuse a statement whose plan calls what changes the engine or hides what it reads.

    Raises:
        SqlRefused: It does.
    """
    for name, _ in _nodes(plan):
        _check_function(_NODE_WITH_SIDE_EFFECTS.search(name), sql)


def planned_columns(plan: str) -> dict[str, frozenset[str]] | None:
    """The columns that a plan reads, by table; None when the plan does not tell.

    Args:
        plan: The output of EXPLAIN (FORMAT json) over scans whose columns are named
            ``table.column``. A scan that needs no column at all is not found here.
    """
    found: dict[str, set[str]] = {}
    for info in [info for name, info in _nodes(plan) if "ARROW_SCAN" in name.upper()]:
        listed = info.get("Projections", [])
        for name in [listed] if isinstance(listed, str) else listed:
            table, dot, column = name.partition(".")
            if not dot:
                return None
            found.setdefault(table, set()).add(column)
        for table, column in re.findall(r"(\w+)\.(\w+)", str(info.get("Filters", ""))):
            found.setdefault(table, set()).add(column)
    return {table: frozenset(columns) for table, columns in found.items()}


def _check_function(found: re.Match[str] | None, sql: str) -> None:
    if found:
        raise SqlRefused(f"{found.group(1).lower()} may not be called from a query", sql=sql)


def _first_word(sql: str) -> str:
    found = _FIRST_WORD.match(sql)
    return found.group(1).lower() if found else ""


def _nodes(plan: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a plan: its name and what is said about it.

    Raises:
        InternalError: DuckDB describes its plans in another way than the supported versions do.
    """
    try:
        waiting = list(json.loads(plan))
        while waiting:
            node = waiting.pop()
            waiting.extend(node.get("children") or ())
            info = node.get("extra_info") or {}
            yield f"{node.get('name', '')} {info.get('Function', '')}", info
    except (ValueError, AttributeError, TypeError) as error:
        raise InternalError(f"the SQL engine's plan cannot be read ({error})") from error
