"""Python's own values as text, as `arrow_cells` has Arrow's.

Rules of this file: column by column, and no library is imported.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from ...sql.plain import (
    BOOLEAN,
    BYTES,
    EXACT,
    FLOATS,
    INTEGERS,
    NOTHING,
    TEXT,
    PlainColumn,
)
from .text import escape_controls, json_number, render_number

if TYPE_CHECKING:
    from decimal import Decimal

_BOOLS = {True: "true", False: "false"}


def json_texts(column: PlainColumn) -> list[str]:
    """Each value as JSON."""
    return ["null" if value is None else _JSON[column.type](value) for value in column.values]


def plain_texts(column: PlainColumn) -> list[str | None]:
    """Each value as unquoted text."""
    return _texts(column, repr)


def short_texts(column: PlainColumn) -> list[str | None]:
    """Each value for the eye."""
    texts = _texts(column, render_number)
    if "".join([text for text in texts if text]).isprintable():
        return texts
    return [text and escape_controls(text) for text in texts]


def is_number(kind: str) -> bool:
    """Whether values of a type are numbers."""
    return kind in INTEGERS or kind in FLOATS or kind in EXACT


def _texts(column: PlainColumn, number: Callable[[float], str]) -> list[str | None]:
    if column.type == TEXT:
        return list(column.values)
    convert = number if column.type in FLOATS else _PLAIN[column.type]
    return [None if value is None else convert(value) for value in column.values]


def _json_float(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'"{json_number(value)}"'


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _json_exact(value: int | Decimal) -> str:
    """A whole number as one; any other as a text, since readers of JSON would round it."""
    is_whole = isinstance(value, int) or value.as_tuple().exponent == 0
    return str(value) if is_whole else f'"{value}"'


_PLAIN: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(INTEGERS, str),
    **dict.fromkeys(EXACT, str),
    BOOLEAN: _BOOLS.__getitem__,
    BYTES: _base64,
    NOTHING: str,
}
_JSON: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(INTEGERS, str),
    **dict.fromkeys(FLOATS, _json_float),
    **dict.fromkeys(EXACT, _json_exact),
    BOOLEAN: _BOOLS.__getitem__,
    BYTES: lambda value: f'"{_base64(value)}"',
    TEXT: encode_basestring,
    NOTHING: str,
}
