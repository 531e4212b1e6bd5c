"""The values of a column as text: for JSON, for CSV and Markdown, for a table that a person reads.

Rules of this file: who writes rows knows only these functions. What a value becomes is said in
`plain_cells` for Python's own values and in `arrow_cells`, which alone imports pyarrow, for all
others; both give the same text for the same value (tested).
"""

from __future__ import annotations

from typing import Any

from ...sql.plain import PlainColumn
from . import plain_cells


def json_texts(column: Any) -> list[str]:
    """Each value as JSON; NULL as ``null``, NaN and the infinities, which JSON lacks, as texts."""
    if isinstance(column, PlainColumn):
        return plain_cells.json_texts(column)
    from . import arrow_cells

    return arrow_cells.json_texts(column)


def plain_texts(column: Any) -> list[str | None]:
    """Each value as unquoted text in full precision; NULL as None."""
    if isinstance(column, PlainColumn):
        return plain_cells.plain_texts(column)
    from . import arrow_cells

    return arrow_cells.plain_texts(column)


def short_texts(column: Any) -> list[str | None]:
    """Each value for the eye: one line, six significant digits, microseconds; NULL as None."""
    if isinstance(column, PlainColumn):
        return plain_cells.short_texts(column)
    from . import arrow_cells

    return arrow_cells.short_texts(column)


def is_number(kind: Any) -> bool:
    """Whether values of a type are numbers, to be lined up on the right."""
    if isinstance(kind, str):
        return plain_cells.is_number(kind)
    from . import arrow_cells

    return arrow_cells.is_number(kind)


def is_time(kind: Any) -> bool:
    """Whether values of a type are points in time, which are shown whole."""
    if isinstance(kind, str):
        return False
    from . import arrow_cells

    return arrow_cells.is_time(kind)
