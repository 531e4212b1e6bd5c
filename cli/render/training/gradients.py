"""The gradients of some steps as a table, the worst first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....units import figure, percent
from ..table import Heading, columns, render_table
from ..text import escape_controls, plural

_UNCLIPPED = 3
"""Before which column the norms before clipping stand, where the script clips."""
_HEADINGS = columns(
    ">step",
    Heading(name="parameter", least=28),
    ">norm",
    ">max",
    ">NaN",
    ">Inf",
    ">zeros",
    ">weight norm",
    ">update ratio",
    ">elements",
)


_LARGE, _HUGE = 10.0, 100.0
"""Norms of all gradients together beyond which most trainings are not stable that do not clip."""
_BEYOND_USUAL = 10.0


def render_gradients(
    rows: Sequence[Mapping[str, Any]],
    *,
    most: int,
    width: int | None,
    color: bool,
    usual_norm: float | None = None,
) -> str:
    """The table, in a line what is wrong in it, and how large all are together.

    Args:
        usual_norm: The median norm of all in the steps before; None where it is not known.
    """
    if not rows:
        return "no optimizer had a gradient that can be read in these steps"
    shown = rows[:most] if most else rows
    headings, cells = list(_HEADINGS), [_cells(row) for row in shown]
    if any(row.get("unclipped_norm") is not None for row in rows):
        headings[_UNCLIPPED:_UNCLIPPED] = columns(">before clipping")
        for row, line in zip(shown, cells, strict=True):
            line.insert(_UNCLIPPED, _short(row.get("unclipped_norm")))
    table = render_table(
        headings,
        cells,
        width=width,
        color=color,
        more_rows=len(rows) - len(shown),
        all_by="-n 0",
    )
    bad = sum(1 for row in rows if row["nan_count"] or row["inf_count"])
    verdict = f"{plural(bad, 'gradient')} of {len(rows):,} with values that are not finite"
    return "\n".join([table, "", verdict, *_together(rows, usual_norm)])


def _together(rows: Sequence[Mapping[str, Any]], usual: float | None) -> Iterator[str]:
    """The norm of all gradients of the last step, beside what it was before, and what to do.

    Both are those before clipping, where the script clips.
    """
    last = max(row["step"] for row in rows)
    own = [row for row in rows if row["step"] == last]
    is_clipped = any(row.get("unclipped_norm") is not None for row in own)
    norms = [row["unclipped_norm" if is_clipped else "norm"] for row in own]
    norm = math.sqrt(math.fsum(value * value for value in norms if value is not None))
    if not math.isfinite(norm):
        return
    ratio = norm / usual if usual else None
    beside = "" if ratio is None else f", {figure(ratio, 2)} times the median of the steps before"
    before = " before clipping" if is_clipped else ""
    yield f"all together: norm {figure(norm)}{before} in step {last}{beside}"
    is_unusual = ratio is not None and ratio > _BEYOND_USUAL
    if is_unusual or (norm > _HUGE and not is_clipped):
        clip = "" if is_clipped else "clip it (`act clip`), "
        yield (
            f"that is far too large: {clip}lower the rate (`act lr --scale 0.1`), or warm up for"
            " longer"
        )
    elif norm > _LARGE and not is_clipped:
        yield "that is large: most trainings stay below 10; see whether it grows"


def _cells(row: Mapping[str, Any]) -> list[str | None]:
    zeros = row["zero_share"]
    return [
        str(row["step"]),
        escape_controls(row["parameter"] or ""),
        _short(row["norm"]),
        _short(row["max_abs"]),
        _count(row["nan_count"]),
        _count(row["inf_count"]),
        None if zeros is None else percent(zeros),
        _short(row["weight_norm"]),
        _short(row["update_ratio"]),
        _count(row["numel"]),
    ]


def _short(value: float | None) -> str | None:
    return None if value is None else figure(value)


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
