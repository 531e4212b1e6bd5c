"""Small pictures in a line of text: a curve, parts of a whole, how full something is.

Rules of this file: pure functions of their arguments. What is drawn is rounded so that parts never
add up to more than their whole, and every picture can be read without colours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "!"
_UNKNOWN = " "
_COLORS = {
    "data wait": "43;30",
    "to device": "46;30",
    "forward": "44;97",
    "loss": "105;30",
    "backward": "45;97",
    "gradient sync": "41;97",
    "gradients": "106;30",
    "optimizer": "42;30",
    "other": "100;97",
}
"""One colour for each phase, the same wherever a bar of phases is drawn."""
_RESET = "\x1b[0m"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """A curve in one line, from the lowest value to the highest; `!` where one is not finite.

    Args:
        values: In their order; None where nothing is known. Where there are more of them than
            columns, each column shows the mean of its stretch.
    """
    columns = _stretches(values, max(1, width))
    known = [value for value in columns if value is not None and math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    return "".join(_level(value, low, high) for value in columns)


def _stretches(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most so many values, each of a stretch; a stretch with one that is not finite is not."""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)] if count else []
    found: list[float | None] = []
    for begin, end in itertools.pairwise(edges):
        known = [value for value in values[begin:end] if value is not None]
        found.append(_mean(known) if known else None)
    return found


def _mean(values: Sequence[float]) -> float:
    """The mean, also where the sum is beyond a float."""
    mean = sum(values) / len(values)
    return mean if math.isfinite(mean) else sum(value / len(values) for value in values)


def _level(value: float | None, low: float, high: float) -> str:
    if value is None:
        return _UNKNOWN
    if not math.isfinite(value):
        return _NOT_FINITE
    if high <= low:
        return _LEVELS[len(_LEVELS) // 2]
    if not math.isfinite(high - low):
        return _level(value / 2, low / 2, high / 2)
    share = (value - low) / (high - low)
    return _LEVELS[min(len(_LEVELS) - 1, int(share * len(_LEVELS)))]


def shares_of(parts: Sequence[float], whole: int) -> list[int]:
    """The parts in whole units that add up to `whole`: the largest remainders are rounded up."""
    total = math.fsum(parts)
    if total <= 0:
        return [0] * len(parts)
    exact = [part / total * whole for part in parts]
    units = [int(share) for share in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: units[i] - exact[i])
    for index in by_remainder[: whole - sum(units)]:
        units[index] += 1
    return units


def stacked_bar(parts: Mapping[str, float], width: int, *, color: bool) -> str:
    """The parts of a whole as one bar: `[data |forward     |backward              |o]`.

    A part has its name in it as far as that fits before its last column, so that names do not run
    together; one that is smaller than a column is not drawn.
    """
    room = max(1, width - 2)
    cells = shares_of(list(parts.values()), room)
    drawn = [(name, size) for name, size in zip(parts, cells, strict=True) if size]
    if color:
        fits = [max(1, size - 1) for _, size in drawn[:-1]] + [size for _, size in drawn[-1:]]
        return " " + "".join(
            f"\x1b[{_COLORS.get(name, '7')}m{name[:fit]:{size}}{_RESET}"
            for (name, size), fit in zip(drawn, fits, strict=True)
        )
    texts = [
        f"{name[: size - 1]:{size - 1}}|" if index + 1 < len(drawn) else f"{name[:size]:{size}}"
        for index, (name, size) in enumerate(drawn)
    ]
    return f"[{''.join(texts)}]"


def gauge(share: float, width: int) -> str:
    """How full something is: `[######......]`; full only where it is, empty only where it is."""
    room = max(1, width - 2)
    share = min(1.0, max(0.0, share))
    cells = int(share * room)
    if share > 0 and cells == 0:
        cells = 1
    return f"[{'#' * cells}{'.' * (room - cells)}]"
