"""What the screens of a process and of a run that was kept share: names at the left, and figures.

Rules of this file: pure functions of their arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...units import duration, figure
from .bars import shares_of, sparkline, stacked_bar
from .text import cut_middle, escape_controls, json_number, module_name, wrap_words

LABEL = 9
_NARROWEST, _WIDEST = 60, 100
_CURVE = 40


def room_in(width: int | None) -> int:
    """How wide a screen is drawn in a terminal, or without one."""
    return min(max(width or 80, _NARROWEST), _WIDEST)


def named(name: str, text: str) -> str:
    """A line, the name of its fact at the left."""
    return f"{name:{LABEL}} {text}"


def column(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines of one fact, whose name stands before the first."""
    yield from (named("" if at else name, line) for at, line in enumerate(lines))


def number(value: float) -> str:
    """A figure that need not be finite."""
    return figure(value) if math.isfinite(value) else str(json_number(value))


def loss_line(
    first: float, since: str, last: float, curve: Sequence[float | None], room: int
) -> str:
    """The last loss, and how it came there from the first, which was `since`."""
    words = f"from {number(first)}{since}"
    drawn = sparkline(curve, min(_CURVE, room - LABEL - len(words) - 13))
    return named("loss", f"{number(last):9} {drawn}  {words}")


def phase_lines(
    phases: Mapping[str, float],
    room: int,
    words: Callable[[str, float, int], str],
    *,
    color: bool,
) -> Iterator[str]:
    """What a step is spent on: one bar, and the parts in words.

    Args:
        phases: Seconds.
        words: Those of a part, by its name, seconds and percents.
    """
    parts = {name.replace("_", " "): seconds for name, seconds in phases.items()}
    if not parts:
        return
    yield named("phases", stacked_bar(parts, room - LABEL - 1, color=color))
    percents = shares_of(list(parts.values()), 100)
    told = [
        words(name, seconds, percent)
        for (name, seconds), percent in zip(parts.items(), percents, strict=True)
        if percent
    ]
    yield from column("", wrap_words(told, room - LABEL - 1))


def slowest_modules(what: str, rows: Sequence[Mapping[str, Any]], room: int) -> Iterator[str]:
    """The slowest modules under a line that says of what, the share of a step behind each."""
    if not rows:
        return
    name_room = room - LABEL - 1 - 12 - 8 - 18
    yield named("slowest", f"{what:{name_room + 16}}  {'each step':>10}  {'of it':>6}")
    for row in rows:
        share = f"{100 * row['share']:.1f} %"
        name = cut_middle(escape_controls(module_name(row)), name_room)
        kind = cut_middle(escape_controls(row["class"] or ""), 15)
        line = f"{name:{name_room}} {kind:15}  {duration(row['own_s']):>10}  {share:>6}"
        yield named("", line)
