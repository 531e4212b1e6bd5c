"""Arrow values as text; see `cells`.

Rules of this file: column by column, since one pass per column costs a tenth of one per cell.
NULL stays apart from every value. Exact things stay exact: integers of any size (DuckDB's
HUGEINT arrives as a decimal without fraction) as numbers, decimals as strings, nanoseconds of
timestamps in full. Times are ISO 8601; binary is base64; an interval is an ISO 8601 duration.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Callable
from functools import partial
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
from pyarrow import types

from .text import escape_controls, json_number, render_number

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_MANY = 10_000
_UNKNOWN = pa.null()
_ENDLESS = {
    f"<value out of range: {sign}{most}>": f"{sign}infinity"
    for sign in ("", "-")
    for most in (2**31 - 1, 2**63 - 1)
}
"""The first and the last date or time of DuckDB, as Arrow writes them."""
_JSON_BOOLS = {None: "null", True: "true", False: "false"}


def json_texts(column: pa.Array) -> list[str]:
    """Each value as JSON; NULL as ``null``, NaN and the infinities, which JSON lacks, as texts."""
    is_hugeint = types.is_decimal(column.type) and column.type.scale == 0
    column = _readable(column)
    values = _values(column)
    if is_hugeint:
        return ["null" if value is None else value for value in values]
    if types.is_string(column.type):
        return ["null" if value is None else encode_basestring(value) for value in values]
    if types.is_integer(column.type):
        return ["null" if value is None else str(value) for value in values]
    if types.is_floating(column.type):
        return [_json_float(value) for value in values]
    if types.is_boolean(column.type):
        return [_JSON_BOOLS[value] for value in values]
    return [_JSON.encode(_json_value(value, column.type)) for value in values]


def plain_texts(column: pa.Array) -> list[str | None]:
    """Each value as unquoted text in full precision; NULL as None."""
    return _texts(column, number=repr)


def short_texts(column: pa.Array) -> list[str | None]:
    """Each value for the eye: one line, six significant digits, microseconds; NULL as None."""
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    texts = _texts(column, number=render_number)
    if "".join([text for text in texts if text]).isprintable():
        return texts
    return [text and escape_controls(text) for text in texts]


def is_number(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are numbers, to be lined up on the right."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_time(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are points in time, which are shown whole."""
    return bool(types.is_temporal(kind))


def _texts(column: pa.Array, *, number: Callable[[float], str]) -> list[str | None]:
    column = _readable(column)
    convert: Callable[[Any], str] = partial(_nested_text, kind=column.type)
    values = _values(column)
    if types.is_string(column.type):
        return values
    if types.is_floating(column.type):
        convert = number
    elif types.is_integer(column.type):
        convert = str
    elif types.is_boolean(column.type):
        convert = {True: "true", False: "false"}.__getitem__
    return [None if value is None else convert(value) for value in values]


def _json_float(value: float | None) -> str:
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else f'"{json_number(value)}"'


def _nested_text(value: Any, kind: pa.DataType) -> str:
    """The text of a value of any other type: JSON, without quotes around a single string."""
    plain = _json_value(value, kind)
    return plain if isinstance(plain, str) else _JSON.encode(plain)


def _json_value(value: Any, kind: pa.DataType) -> Any:
    """A Python value of a type, which is not known in a union, as JSON can hold it."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, pa.MonthDayNano):
        return _duration(value)
    if isinstance(value, dict):
        kinds = _inner(kind) or [_UNKNOWN] * len(value)
        items = zip(value.items(), kinds, strict=True)
        return {str(key): _json_value(item, one) for (key, item), one in items}
    if isinstance(value, list):
        first, second, *_ = (*_inner(kind), _UNKNOWN, _UNKNOWN)
        if types.is_map(kind) or (value and type(value[0]) is tuple):  # no interval
            return {str(_json_value(key, first)): _json_value(item, second) for key, item in value}
        return [_json_value(item, first) for item in value]
    if isinstance(value, dt.timedelta):
        nanoseconds = value // dt.timedelta(microseconds=1) * 1000
        return _duration(pa.MonthDayNano([0, 0, nanoseconds]))
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _duration(interval: pa.MonthDayNano) -> str:
    """An interval as an ISO 8601 duration, each part with its own sign."""
    sign = "-" if interval.nanoseconds < 0 else ""
    whole, fraction = divmod(abs(interval.nanoseconds), 10**9)
    seconds = f"{sign}{whole}{f'.{fraction:09d}'.rstrip('0') if fraction else ''}"
    months = f"{interval.months}M" if interval.months else ""
    days = f"{interval.days}D" if interval.days else ""
    time = "" if (months or days) and not interval.nanoseconds else f"T{seconds}S"
    return f"P{months}{days}{time}"


def _readable(column: pa.Array) -> pa.Array:
    """The column with times (Python's know no nanoseconds) and decimals (slow ones) as text."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_decimal(column.type):
        return column.cast(pa.string())
    if types.is_timestamp(column.type):
        text = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
        zone = "Z" if column.type.tz else ""
        values = [_time_text(value, zone) for value in text.to_pylist()]
        return pa.array(values, pa.string())
    if types.is_date(column.type):
        text = column.cast(pa.string())
        return pa.array([_time_text(value) for value in text.to_pylist()], pa.string())
    target = _readable_type(column.type)
    if target == column.type or _has_map_of_nothing(column.type):
        return column
    return column.cast(target)


def _time_text(text: str | None, zone: str = "") -> str | None:
    """A time of Arrow's as ISO 8601; one that no calendar has as DuckDB's word or Arrow's."""
    if text is None or text.startswith("<"):
        return _ENDLESS.get(text, text) if text else None
    return text.replace(" ", "T", 1) + zone


def _readable_type(kind: pa.DataType) -> pa.DataType:
    """A type with the dates and times in it replaced by strings."""
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return pa.string()
    inner = [_readable_type(one) for one in _inner(kind)]
    if inner == _inner(kind):
        return kind
    if types.is_struct(kind):
        return pa.struct([one.with_type(new) for one, new in zip(kind, inner, strict=True)])
    if types.is_map(kind):
        return pa.map_(*inner)
    return pa.list_(*inner, kind.list_size if types.is_fixed_size_list(kind) else -1)


def _inner(kind: pa.DataType) -> list[pa.DataType]:
    """The types of the parts of a nested type."""
    if types.is_struct(kind):
        return [field.type for field in kind]
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if types.is_list(kind) or types.is_fixed_size_list(kind) else []


def _has_map_of_nothing(kind: pa.DataType) -> bool:
    """Whether a map whose keys have no type is in it: to cast one ends the process."""
    if types.is_map(kind) and types.is_null(kind.key_type):
        return True
    return any(_has_map_of_nothing(one) for one in _inner(kind))


def _values(column: pa.Array) -> list[Any]:
    """The Python values; many by way of numpy, in a tenth of the time, where that loses nothing.

    That imports pandas where it is installed, which takes longer than to convert some.
    """
    if len(column) < _MANY:
        return list(column.to_pylist())
    kind = column.type
    is_primitive = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if types.is_string(kind) or (is_primitive and not column.null_count):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())
