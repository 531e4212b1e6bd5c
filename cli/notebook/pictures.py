"""Curves, stacked areas and stacked bars as SVG that any page shows.

Rules of this file: pure functions of their arguments; under the mouse each place says its figures.
A picture is 640 wide and shrinks with its page. What is not known is a gap, what is not finite a
red line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..render.text import render_number
from .html import escaped

Values = Sequence[float | None]
Words = Callable[[float], str]

_COLORS = (
    "#d9822b", "#2a9d8f", "#3b7dd8", "#b565a7", "#8e5cc4", "#c94f4f", "#6b8e23", "#4a9c5d",
    "#8a8a8a", "#b08d57",
)  # fmt: skip
"""Of the parts of a whole, in their order; each can be told on white and on black."""
_BAD = "#e5484d"
_WIDE, _TALL = 640, 132
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 634, 22, 112
_MOST_POINTS = 500
"""A longer course is drawn by the means of its stretches."""


def curve(title: str, at: Sequence[int], values: Values, words: Words = render_number) -> str:
    """A course over the steps; nothing where none of it is known.

    Args:
        at: The step of each value.
        words: How a value is told.
    """
    if all(value is None for value in values):
        return ""
    at, (values,) = _shortened(at, [values])
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    xs, scale = _places(len(at)), _scale(low, high)
    lines = "".join(
        f'<path d="{_line(points)}" fill="none" stroke="{_COLORS[2]}" stroke-width="1.5"/>'
        for points in _pieces(xs, values, scale)
    )
    bad = "".join(
        f'<path d="M{x:.1f} {_TOP}V{_BOTTOM}" stroke="{_BAD}" stroke-width="1.5"/>'
        for x, value in zip(xs, values, strict=True)
        if value is not None and not math.isfinite(value)
    )
    told = ["not known" if value is None else words(value) for value in values]
    scale_texts = _ends(words(low), words(high)) if finite else ""
    return _svg(title, at, lines + bad + scale_texts + _hover(xs, at, told))


def areas(title: str, at: Sequence[int], parts: Mapping[str, Values], words: Words) -> str:
    """The parts of a whole over the steps, one on the other.

    Args:
        parts: All that there can be, in their order, so that each keeps its colour; those that are
            never more than nothing are left out.
    """
    shown = {
        name: color
        for (name, values), color in zip(parts.items(), itertools.cycle(_COLORS), strict=False)
        if any(value and math.isfinite(value) for value in values)
    }
    if not shown:
        return ""
    at, columns = _shortened(at, [parts[name] for name in shown])
    heights = [[value or 0.0 for value in column] for column in columns]
    sums = [math.fsum(column) for column in zip(*heights, strict=True)]
    xs, scale = _places(len(at)), _scale(0.0, max(sums))
    drawn, floor = "", [0.0] * len(at)
    for color, column in zip(shown.values(), heights, strict=True):
        top = [below + value for below, value in zip(floor, column, strict=True)]
        edge = [(x, scale(y)) for x, y in zip(xs, top, strict=True)]
        back = [(x, scale(y)) for x, y in zip(xs, floor, strict=True)]
        drawn += f'<path d="{_line([*edge, *reversed(back)])}Z" fill="{color}"/>'
        floor = top
    told = [
        ", ".join(f"{name} {words(value)}" for name, value in zip(shown, column, strict=True))
        for column in zip(*heights, strict=True)
    ]
    body = drawn + _ends(words(0.0), words(max(sums))) + _hover(xs, at, told)
    return _svg(title, at, body) + _legend(shown)


def bar(title: str, parts: Mapping[str, float], words: Words) -> str:
    """The parts of a whole in one bar; as in `areas`, all that there can be, in their order."""
    total = math.fsum(parts.values())
    if total <= 0:
        return ""
    drawn, x, shown = "", 0.0, {}
    for (name, size), color in zip(parts.items(), itertools.cycle(_COLORS), strict=False):
        if size <= 0:
            continue
        width = _WIDE * size / total
        told = escaped(f"{name}: {words(size)}, {100 * size / total:.1f} %")
        drawn += f'<rect x="{x:.1f}" y="20" width="{width:.1f}" height="22" fill="{color}">'
        drawn += f"<title>{told}</title></rect>"
        x += width
        shown[f"{name} {words(size)}"] = color
    return _open(46) + _text(0, 14, title) + drawn + "</svg>" + _legend(shown)


def _shortened(at: Sequence[int], columns: Sequence[Values]) -> tuple[Sequence[int], list[Values]]:
    """At most so many points: each the mean of a stretch, which is not finite if one in it is."""
    if len(at) <= _MOST_POINTS:
        return at, list(columns)
    edges = [round(i * len(at) / _MOST_POINTS) for i in range(_MOST_POINTS + 1)]
    pairs = list(itertools.pairwise(edges))

    def mean(values: Values) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return [at[begin] for begin, _ in pairs], [[mean(c[b:e]) for b, e in pairs] for c in columns]


def _places(count: int) -> list[float]:
    """Where each of so many points is, from left to right."""
    wide, last = _RIGHT - _LEFT, max(1, count - 1)
    return [_LEFT + wide * (at if count > 1 else 0.5) / last for at in range(count)]


def _scale(low: float, high: float) -> Callable[[float], float]:
    """How high a value is drawn."""
    spread = high - low
    if spread <= 0 or not math.isfinite(spread):
        return lambda _: (_TOP + _BOTTOM) / 2
    return lambda value: _BOTTOM - (_BOTTOM - _TOP) * (value - low) / spread


def _pieces(
    xs: Sequence[float], values: Values, scale: Callable[[float], float]
) -> Iterator[list[tuple[float, float]]]:
    """The stretches of a course without a gap; a single point as a short line."""
    pairs = zip(xs, values, strict=True)
    groups = itertools.groupby(pairs, lambda p: p[1] is not None and math.isfinite(p[1]))
    for is_known, group in groups:
        if is_known:
            points = [(x, scale(value)) for x, value in group if value is not None]
            yield points if len(points) > 1 else [(points[0][0] - 1, points[0][1]), *points]


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _hover(xs: Sequence[float], at: Sequence[int], told: Sequence[str]) -> str:
    """What is said under the mouse, step by step."""
    width = (_RIGHT - _LEFT) / max(1, len(xs))
    return '<g fill="transparent">' + "".join(
        f'<rect x="{x - width / 2:.1f}" y="{_TOP}" width="{width:.1f}" height="{_BOTTOM - _TOP}">'
        f"<title>step {step}: {escaped(words)}</title></rect>"
        for x, step, words in zip(xs, at, told, strict=True)
    ) + "</g>"  # fmt: skip


def _ends(low: str, high: str) -> str:
    """The lowest and the highest value at the left, with the frame of the picture."""
    frame = f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" fill="none" stroke="currentColor"'
    lowest = _text(_LEFT - 4, _BOTTOM, low, anchor="end")
    highest = _text(_LEFT - 4, _TOP + 8, high, anchor="end")
    return f'{frame} stroke-opacity=".4"/>{lowest}{highest}'


def _svg(title: str, at: Sequence[int], body: str) -> str:
    steps = _text(_LEFT, _TALL - 4, f"step {at[0]}")
    if len(at) > 1:
        steps += _text(_RIGHT, _TALL - 4, str(at[-1]), anchor="end")
    return _open(_TALL) + _text(0, 14, title) + body + steps + "</svg>"


def _open(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}"'
        f' style="max-width:{_WIDE}px;width:100%;display:block" role="img"'
        ' font-family="system-ui,sans-serif" font-size="11">'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start") -> str:
    at = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text {at} fill="currentColor">{escaped(words)}</text>'


def _legend(shown: Mapping[str, str]) -> str:
    """Which colour stands for what."""
    marks = "".join(
        f'<span style="margin-right:1em;white-space:nowrap"><span style="color:{color}">&#9632;'
        f"</span> {escaped(name)}</span>"
        for name, color in shown.items()
    )
    return f'<div style="font-size:85%;max-width:{_WIDE}px;margin-bottom:.5em">{marks}</div>'
