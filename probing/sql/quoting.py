"""How names, texts and values are written in SQL, and several statements as one.

Rules of this file: pure; whoever writes a statement may use it. A question mark within a text, a
name or a comment stands for no value.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import SqlError

_TEXTS = r"""(?<![\w$])[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | --[^\n]*
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | (?P<comment>/\*)"""
"""Texts and comments; of one between marks, which may hold others, the first."""
_NAME = r'''"(?:[^"]|"")*"'''
_EDGE = re.compile(r"/\*|\*/")
_MARK = r"\?"
_WORD = rf"{_NAME} | \w+ | \S"
_NUMBERS = "biuf"
"""The kinds of numpy's numbers."""


def identifier(name: str) -> str:
    """A name in double quotes, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def in_one(statements: Mapping[str, str]) -> str:
    """Statements as one, as most of the cost of one is that it is one; a list of rows of each."""
    lists = [f"(SELECT list(x) FROM ({s}) AS x) AS {name}" for name, s in statements.items()]  # noqa: S608 - statements of ours
    return "SELECT " + ", ".join(lists)


def put_in_code(sql: str, what: str, put: Callable[[re.Match[str]], str]) -> str:
    """The statement with something put in where a pattern fits outside of texts and comments.

    Of names in quotes it may fit one that it begins with.
    """
    parts, at = [], 0
    for found in _in_code(sql, what):
        parts += [sql[at : found.start()], put(found)]
        at = found.end()
    return "".join([*parts, sql[at:]])


def code_of(sql: str) -> str:
    """The words and signs of the statement, without its texts and comments."""
    return " ".join(found[0] for found in _in_code(sql, _WORD))


def _in_code(sql: str, what: str) -> Iterator[re.Match[str]]:
    tokens, at = _tokens(what), 0
    while (found := tokens.search(sql, at)) is not None:
        at = found.end()
        if found["comment"]:
            at = _behind_comment(sql, at)
        elif found["what"]:
            yield found


@functools.cache
def _tokens(what: str) -> re.Pattern[str]:
    return re.compile(f"{_TEXTS} | (?P<what>{what}) | {_NAME}", re.VERBOSE | re.DOTALL)


def _behind_comment(sql: str, at: int) -> int:
    """Where a comment ends that has begun before this place."""
    depth = 1
    for edge in _EDGE.finditer(sql, at):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return len(sql)


def marks_in(sql: str) -> int:
    """How many question marks stand for values."""
    return sum(1 for _ in _in_code(sql, _MARK))


def with_values(sql: str, values: Sequence[Any]) -> str:
    """The statement with a value in the place of each question mark.

    Raises:
        SqlError: There are more values than marks, or fewer, or one is of no known type.
    """
    left = list(values)
    marks = marks_in(sql)
    if marks != len(left):
        there = f"{marks} question mark{'' if marks == 1 else 's'}"
        given = f"{len(left)} value{' was' if len(left) == 1 else 's were'}"
        raise SqlError(f"the statement has {there}, and {given} given")
    return put_in_code(sql, _MARK, lambda _: _literal(left.pop(0)))


def _literal(value: Any) -> str:
    import decimal

    value = _of_python(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"'{float(value)!r}'::DOUBLE"
    if isinstance(value, (int, decimal.Decimal)):
        return f"({value})"
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, (bytes, bytearray)):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat(' ')}'::{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'}"
    if isinstance(value, (dt.date, dt.time)):
        return f"'{value.isoformat()}'::{type(value).__name__.upper()}"
    raise SqlError(f"a value of type {type(value).__name__} cannot stand in a statement")


def _of_python(value: Any) -> Any:
    """A number of numpy as Python's own, and one that no DECIMAL can be as a float."""
    import decimal

    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item() if value.dtype.kind in _NUMBERS else value
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        return math.nan if value.is_nan() else float(value)
    return value
