"""The ranks of a job on one screen: a line each where they are few, else a cell each.

Rules of this file: pure functions of their arguments. Who is not as the others stands out: by its
word, by how many steps it is behind, and where there are colours by those.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....client.recent_steps import STILL
from ....units import duration, figure, size
from ..bars import stacked_bar
from ..table import Drawing, Heading, draw_table, render_table
from ..text import cut_middle, escape_controls, render_count

if TYPE_CHECKING:
    from ...reports.rank_grid import GridCell, RankGrid

_MOST_LINES = 16
"""More ranks than this do not fit one below the other."""
_WITH_LAG = 90
"""The columns from which on a live line has room for how far a rank is behind."""
_NARROW, _LEAST_BAR = 78, 12
"""The columns of a bar of phases, on a narrow screen; a third of what a wider one has more."""
_LEAST_LABEL = 12
_CELL = 9
_MOST_CELLS = 128
_RED, _YELLOW, _RESET = "\x1b[31m", "\x1b[33m", "\x1b[0m"
_SHORT = {
    "training": "ok",
    "not answering": "silent",
    "no agent": "noagent",
    "not recorded": "norec",
    "attaching": "attach",
    "elsewhere": "else",
    "missing": "missing",
    "dead": "ended",
    STILL: "nostep",
}
_LETTERS = {"training": ".", "dead": "D", "missing": "M", "stopped": "S", "not answering": "N"}
_BEHIND = 2
"""A step less than the first is no news."""


def render_grid(grid: RankGrid, *, asked: str, width: int | None, color: bool) -> str:
    """The grid under a line on the whole, and below it what to type next."""
    cells = grid.cells
    if len(cells) <= _MOST_LINES:
        body = _table(cells, width=width, color=color)
    elif len(cells) <= _MOST_CELLS:
        body = "\n".join(_blocks(cells, width or 80, color=color))
    else:
        body = "\n".join(_letters(cells, width or 80))
    head = (escape_controls(line) for line in head_of(grid, width))
    return "\n".join([*head, "", body, "", *_next(cells, asked)])


def head_of(grid: RankGrid, width: int | None) -> tuple[str, ...]:
    """Who was looked for, and what they do; on two lines where one is too short."""
    ranks = [cell for cell in grid.cells if cell.rank is not None]
    others = len(grid.cells) - len(ranks)
    counted = ranks or grid.cells
    seen = sum(cell.state != "missing" for cell in counted)
    of = f" of {grid.expected}" if grid.expected is not None and ranks else ""
    noun = ("rank" if seen == 1 else "ranks") if ranks else _processes(seen)
    beside = f", {others} other {_processes(others)}" if ranks and others else ""
    counts = f"{seen}{of} {noun} seen{beside}"
    steps = [cell.step for cell in ranks if cell.step is not None]
    span = ""
    if steps:
        low, high = min(steps), max(steps)
        span = f"; step {low:,}" if low == high else f"; steps {low:,} to {high:,}"
    does = f"{_states(grid.cells)}{span}"
    line = f"{grid.label}: {counts}: {does}"
    if width is None or len(line) <= width:
        return (line,)
    return f"{cut_middle(grid.label, max(_LEAST_LABEL, width - len(counts) - 2))}: {counts}", does


def _processes(number: int) -> str:
    return "process" if number == 1 else "processes"


def _states(cells: Sequence[GridCell]) -> str:
    """How many do what: `3 training, 1 ended`."""
    states = dict.fromkeys(cell.state for cell in cells)
    counts = {state: sum(cell.state == state for cell in cells) for state in states}
    return ", ".join(
        f"{number} {'ended' if state == 'dead' else state}" for state, number in counts.items()
    )


def _table(cells: Sequence[GridCell], *, width: int | None, color: bool) -> str:
    scripts = [_SCRIPT] if any(cell.rank is None and cell.script for cell in cells) else []
    columns = [*_WHO, _BEHIND_FIRST, *_LAST, _LOSS, *_WHERE, *scripts]
    rows = [[column.text(cell, cells) for column in columns] for cell in cells]
    headings = [column.heading for column in columns]
    table = render_table(headings, rows, width=width, color=color)
    return f"{table}\ndata, ranks: the part of the last step that was waiting for them"


def draw_live(
    cells: Sequence[GridCell], whole: Sequence[GridCell], *, width: int, color: bool
) -> Drawing:
    """A line each, for a screen that is drawn again and again: figures over the last steps.

    Args:
        whole: All of them, where these are only some.
    """
    size = _LEAST_BAR + max(0, width - _NARROW) // 3
    bar = _Column(
        Heading(name="phases", is_drawn=True),
        lambda cell, _: stacked_bar(_named(cell.phases), size, color=color) if cell.phases else "",
    )
    ranked = any(cell.rank is not None for cell in whole)
    names = [_WHO[0]] if ranked else []
    if any(cell.rank is None for cell in whole):
        names.append(_WHERE[0])  # nothing else tells them apart but what they run
        if any(cell.script for cell in whole) and (not ranked or width >= _WITH_LAG):
            names.append(_SCRIPT)
    lag = [_BEHIND_FIRST] if ranked and width >= _WITH_LAG else []
    where = [column for column in _WHERE if column not in names]
    columns = [*names, *_WHO[1:3], *lag, _EACH, bar, _LOSS, _MEMORY, *_WAITS, *where]
    rows = [[column.text(cell, whole) for column in columns] for cell in cells]
    return draw_table([column.heading for column in columns], rows, width=width, color=color)


def _named(phases: Mapping[str, float]) -> dict[str, float]:
    return {name.replace("_", " "): seconds for name, seconds in phases.items()}


class _Column(NamedTuple):
    """A column of a table of ranks: its heading, and its text of one of them all."""

    heading: Heading
    text: Callable[[GridCell, Sequence[GridCell]], str]


def _number(name: str, text: Callable[[GridCell, Sequence[GridCell]], str]) -> _Column:
    return _Column(Heading(name=name, is_number=True), text)


def _step_share(cell: GridCell, phase: str) -> str:
    """The part of the last steps that was one phase."""
    return _share(cell.phases.get(phase), math.fsum(cell.phases.values()))


def _share(part_s: float | None, whole_s: float | None) -> str:
    return "" if part_s is None or not whole_s else f"{100 * part_s / whole_s:.0f} %"


def _lag(cell: GridCell, cells: Sequence[GridCell]) -> int:
    """How many steps it is behind the first of its job."""
    steps = [one.step for one in cells if one.step is not None and one.job == cell.job]
    return 0 if cell.step is None or cell.rank is None else max(steps) - cell.step


def behind(cell: GridCell, cells: Sequence[GridCell]) -> str:
    """How many steps it is behind the first of its job, where it is."""
    lag = _lag(cell, cells)
    return render_count(lag) if lag else ""


_WHO = (
    _number("rank", lambda cell, _: "" if cell.rank is None else str(cell.rank)),
    _Column(
        Heading(name="state", least=12),
        lambda cell, _: "ended" if cell.state == "dead" else cell.state,
    ),
    _number("step", lambda cell, _: render_count(cell.step)),
)
_BEHIND_FIRST = _number("behind", behind)
_LAST = (
    _number(
        "last step", lambda cell, _: "" if cell.duration_s is None else duration(cell.duration_s)
    ),
    _number("data", lambda cell, _: _share(cell.data_wait_s, cell.duration_s)),
    _number("ranks", lambda cell, _: _share(cell.sync_s, cell.duration_s)),
)
_LOSS = _number("loss", lambda cell, _: "" if cell.loss is None else figure(cell.loss))
_EACH = _number("each", lambda cell, _: "" if cell.step_s is None else duration(cell.step_s))
_MEMORY = _number(
    "memory", lambda cell, _: "" if cell.memory_bytes is None else size(cell.memory_bytes)
)
_WAITS = (
    _number("data", lambda cell, _: _step_share(cell, "data_wait")),
    _number("ranks", lambda cell, _: _step_share(cell, "gradient_sync")),
)
_SCRIPT = _Column(Heading(name="script"), lambda cell, _: escape_controls(cell.script))
_WHERE = (
    _number("pid", lambda cell, _: "" if cell.pid is None else str(cell.pid)),
    _Column(Heading(name="host"), lambda cell, _: escape_controls(cell.host)),
)


def _blocks(cells: Sequence[GridCell], width: int, *, color: bool) -> Iterator[str]:
    """A cell each: its rank, and ok or what is odd about it."""
    most = max(len(cell.name.removeprefix("rank ")) for cell in cells)
    room = max(_CELL, most + 8)
    per_line = max(1, width // room)
    for start in range(0, len(cells), per_line):
        line = []
        for cell in cells[start : start + per_line]:
            word, style = _word(cell, cells)
            text = f"{cell.name.removeprefix('rank '):>{most}} {word:{room - most - 1}}"
            line.append(f"{style}{text}{_RESET}" if color and style else text)
        yield "".join(line).rstrip()
    yield "ok: in the same step as the first, or in the one before; -N: N steps behind"


def _word(cell: GridCell, cells: Sequence[GridCell]) -> tuple[str, str]:
    lag = _lag(cell, cells)
    if cell.state == "training":
        return ("ok", "") if lag < _BEHIND else (f"-{lag}", _YELLOW)
    return _SHORT.get(cell.state, cell.state[:7]), _RED


def _letters(cells: Sequence[GridCell], width: int) -> Iterator[str]:
    """A letter each, in lines that begin with the first rank in them."""
    margin = len(cells[-1].name.removeprefix("rank ")) + 1
    per_line = max(8, (width - margin) // 8 * 8)
    for start in range(0, len(cells), per_line):
        line = "".join(_letter(cell, cells) for cell in cells[start : start + per_line])
        yield f"{cells[start].name.removeprefix('rank '):>{margin - 1}} {line}"
    yield ".: trains; 2 to 9: so many steps behind, + more; D ended, M missing,"
    yield "N not answering, S stopped, ? another state"


def _letter(cell: GridCell, cells: Sequence[GridCell]) -> str:
    lag = _lag(cell, cells)
    if cell.state == "training" and lag >= _BEHIND:
        return str(lag) if lag < 10 else "+"
    return _LETTERS.get(cell.state, "?")


def _next(cells: Sequence[GridCell], asked: str) -> Iterator[str]:
    odd = [cell for cell in cells if cell.state != "training"]
    hints = []
    if odd:
        hints.append((f"{asked} hang", "which rank it is, and why"))
    else:
        hints.append((f"{asked} stragglers", "which rank holds up the others"))
    hints.append((f"{asked} doctor", "what is wrong, and what to do"))
    if odd and odd[0].target:
        hints.append((shlex.quote(odd[0].target), "this one on one screen"))
    elif cells and cells[0].target:
        hints.append((shlex.quote(cells[0].target), "one of them on one screen"))
    widest = max(len(command) for command, _ in hints)
    for index, (command, why) in enumerate(hints):
        yield f"{'' if index else 'next':5} probing {command:{widest}}  {why}"
