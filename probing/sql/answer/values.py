"""The values of an answer as Python's own.

Rules of this file: times are datetimes, to the microsecond, and those that Python does not have are
texts; no value is of a library.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_MAY_BE_TIMES = re.compile("time|date|duration")
_NOT_IN_PYTHON = (OverflowError, ValueError)
"""What pyarrow raises over a value that Python has no object for: its dates end with year 9999."""
_MOST = 2**63 - 1
"""The last time of DuckDB, and by its other sign the first: `infinity`."""
_MOST_DAYS = 2**31 - 1
"""The last date."""
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After how many the calendar repeats itself."""


def may_be_times(kind: pa.DataType) -> bool:
    """Whether values of a type may have to be made Python's own."""
    return _MAY_BE_TIMES.search(str(kind)) is not None


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python's own; see `Rows.to_pylist`.

    pyarrow gives a time of nanoseconds as an object of pandas, or an error where that is missing.
    """
    if not (pa.types.is_nested(column.type) and may_be_times(column.type)):
        try:
            if not _has_endless_ns(column):
                return list(_in_microseconds(column).to_pylist())
        except _NOT_IN_PYTHON:
            pass
    return [_python_value(scalar) for scalar in column]


def _python_value(scalar: pa.Scalar) -> Any:
    """One of them, of a nested one part by part."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _python_value(part) for name, part in scalar.items()}
    if pa.types.is_map(kind):
        pairs = [(pair[0], pair[1]) for pair in scalar.values]
        return [(_python_value(key), _python_value(value)) for key, value in pairs]
    if pa.types.is_union(kind):
        return _python_value(scalar.value)
    if pa.types.is_nested(kind):
        return [_python_value(part) for part in scalar.values]
    if pa.types.is_timestamp(kind) and abs(scalar.value) == _MOST:
        return _endless(scalar)
    try:
        return _in_microseconds(scalar).as_py()
    except _NOT_IN_PYTHON:
        if pa.types.is_date32(kind) and abs(scalar.value) == _MOST_DAYS:
            return _endless(scalar)
        if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
            return _far(scalar)
        return str(scalar.cast(pa.string()))


def _has_endless_ns(column: pa.ChunkedArray) -> bool:
    """Whether any is none that Python has, but would be one in microseconds."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return False
    ends = (pa.scalar(value, kind) for value in (_MOST, -_MOST))
    return any(column.index(end).as_py() >= 0 for end in ends)


def _endless(scalar: pa.Scalar) -> str:
    return "infinity" if scalar.value > 0 else "-infinity"


def _far(scalar: pa.Scalar) -> str:
    """A date or a time of a year that Python does not have, and maybe Arrow neither, as a text."""
    kind, zone = scalar.type, ""
    cycle = _CYCLE_DAYS
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "+00:00"
        kind = pa.timestamp(kind.unit)
        cycle *= _PER_DAY[kind.unit]
    cycles, near = divmod(scalar.value, cycle)
    text = str(pa.scalar(near, kind).cast(pa.string()))
    year = int(text[:4]) + cycles * _CYCLE_YEARS
    return f"{'-' if year < 0 else ''}{abs(year):04}{text[4:]}{zone}"


def _in_microseconds(values: Any) -> Any:
    """An array or a scalar; one of nanoseconds loses them."""
    kind = values.type
    if getattr(kind, "unit", None) != "ns":
        return values
    shorter = pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")
    if pa.types.is_timestamp(kind):
        shorter = pa.timestamp("us", kind.tz)
    return values.cast(shorter, safe=False)
