"""What the live screen shows, and what keys do to it.

Rules of this file: no terminal and no clock here: keys come in, lines go out. What is shown always
stands beside the command that shows the same.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...messages.frozen import dataclass
from ...units import figure
from ..render.process.overview import render_overview
from ..render.process.stacks import render_backtrace
from ..render.ranks.grid import draw_live, head_of
from ..render.text import cut_words, escape_controls, wrap_text, wrap_words

if TYPE_CHECKING:
    from ..reports.rank_grid import GridCell
    from .looking import Sight

_END = 1 << 30
_FOOT = 2
"""The lines below: what is shown and the command for it; and the keys."""
_BOLD, _DIM, _INVERSE, _RED, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[7m", "\x1b[31m", "\x1b[0m"
_KEYS = {
    "ranks": "arrows choose  enter look  b stack  s sort  / filter  u now  ? help  q quit",
    "one": "b stack  u look again  esc all  space pause  c copy command  ? help  q quit",
    "stack": "arrows scroll  b again  v whole  esc back  c copy command  ? help  q quit",
    "help": "any key goes back  q quit",
    "filter": "part of state, rank, pid, job, host, script  enter keep it  esc all",
}
_HELP = """\
keys

  up down, j k     choose a rank; scroll a stack (page up, page down, home, end)
  enter, right     look at the chosen one: step, loss, phases, memory, modules,
                   findings
  b                where its threads are; again: look again
  v                in a stack: every frame of every thread
  esc, left        back to all
  s, r             sort by the next column; the other way round
  /                only those with these letters in state, rank, pid, job, host,
                   script
  space            pause: nothing is read until the next space
  u                look now, also in a pause; in one that was entered at its
                   modules and findings, too, which is done seldom as it costs
  c                offer the command that shows the same to the clipboard
  q, Ctrl-C        leave

data, ranks: the part of the last 20 steps that was waiting for them
memory: what the accelerator's allocator had given out, else the resident set"""


def _largest(value: float | None) -> tuple[int, float]:
    """A key of the largest first: what is not finite before all else, what is not known behind."""
    if value is None:
        return 2, 0.0
    return (1, -value) if math.isfinite(value) else (0, 0.0)


def _part(cell: GridCell, phase: str) -> float | None:
    whole = math.fsum(cell.phases.values())
    return cell.phases.get(phase, 0.0) / whole if whole else None


_ORDERS: dict[str, Callable[[GridCell], Any]] = {
    "rank": lambda _: (),
    "state": lambda cell: (cell.state == "training", cell.state),
    "step": lambda cell: (cell.step is None, cell.step or 0),
    "each": lambda cell: _largest(cell.step_s),
    "data": lambda cell: _largest(_part(cell, "data_wait")),
    "ranks": lambda cell: _largest(_part(cell, "gradient_sync")),
    "memory": lambda cell: _largest(cell.memory_bytes),
    "loss": lambda cell: _largest(cell.loss),
}
"""What ranks are sorted by, the oddest first."""


@dataclass(slots=True)
class View:
    """The state of the screen.

    Attributes:
        asked: The words that name whom it is about, as on the command line.
        mode: ``ranks``, ``one``, ``stack`` or ``help``.
        is_typing: Whether keys are letters of the filter.
        chosen: The endpoint of the line that is marked, or of the one that is looked at.
        told: What is said until the next key.
    """

    asked: str
    mode: str = "ranks"
    chosen: str | None = None
    order: str = "rank"
    is_reversed: bool = False
    letters: str = ""
    is_typing: bool = False
    is_paused: bool = False
    is_whole: bool = False
    top: int = 0
    page: int = 10
    told: str = ""
    _before_help: str = "ranks"

    def press(self, key: str, sight: Sight) -> str | None:
        """Do what a key says.

        Returns:
            What others have to do: `quit`, `all`, `one`, `stack`, `renew`, `copy` or `pause`.
        """
        self.told = ""
        if self.is_typing:
            self._type(key)
            return None
        if self.mode == "help":
            self.mode = self._before_help
            return "quit" if key == "q" else None
        if key == "?":
            self._before_help, self.mode = self.mode, "help"
        elif key == " ":
            self.is_paused = not self.is_paused
            return "pause"
        elif key in ("q", "c"):
            return {"q": "quit", "c": "copy"}[key]
        elif self.mode == "ranks":
            return self._press_ranks(key, sight)
        else:
            return self._press_one(key)
        return None

    def command(self, sight: Sight) -> str:
        """What to type to see the same."""
        if self.mode in ("ranks", "help") or self.chosen is None:
            return f"probing {self.asked}"
        who = shlex.quote(named(self.chosen, sight))
        return f"probing {who} backtrace" if self.mode == "stack" else f"probing {who}"

    def shown(self, sight: Sight) -> list[GridCell]:
        """The lines of the list, sorted and filtered."""
        cells = sight.grid.cells if sight.grid is not None else ()
        fitting = [cell for cell in cells if self.letters.lower() in _words(cell)]
        ordered = sorted(fitting, key=_ORDERS[self.order])
        return ordered[::-1] if self.is_reversed else ordered

    def frame(self, sight: Sight, *, columns: int, lines: int, color: bool) -> list[str]:
        """The whole screen."""
        room = max(1, lines - _FOOT)
        self.page = max(1, room - 2)
        if self.mode == "help":
            body = _HELP.split("\n")
        elif self.mode == "ranks":
            body = self._ranks(sight, columns, room, color=color)
        elif self.mode == "stack":
            body = self._stack(sight, columns, room, color=color)
        else:
            body = _one(sight, columns, room, color=color)
        body = [*body[:room], *[""] * (room - len(body))]
        return [*body, *self._foot(sight, columns, color=color)]

    def _type(self, key: str) -> None:
        """A letter of the filter."""
        if key in ("enter", "escape"):
            self.is_typing = False
            self.letters = self.letters if key == "enter" else ""
        elif key == "backspace":
            self.letters = self.letters[:-1]
        elif len(key) == 1:
            self.letters += key

    def _press_ranks(self, key: str, sight: Sight) -> str | None:
        shown = [cell.endpoint for cell in self.shown(sight)]
        at = shown.index(self.chosen) if self.chosen in shown else 0
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self.page,
                 "page down": self.page, "home": -len(shown), "end": len(shown)}  # fmt: skip
        if key in moves and shown:
            self.chosen = shown[min(len(shown) - 1, max(0, at + moves[key]))]
        elif key in ("enter", "right", "b") and shown:
            self.chosen, self.top = shown[at], _END
            self.mode = "stack" if key == "b" else "one"
            return "stack" if key == "b" else "one"
        elif key == "s":
            names = list(_ORDERS)
            self.order = names[(names.index(self.order) + 1) % len(names)]
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "u":
            return "renew"
        elif key == "/":
            self.is_typing, self.letters = True, ""
        elif key == "escape":
            self.letters = ""
        return None

    def _press_one(self, key: str) -> str | None:
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self.page,
                 "page down": self.page, "home": -_END, "end": _END}  # fmt: skip
        if key == "b":
            self.mode, self.top = "stack", _END
            return "stack"
        if key == "u":
            return "renew"
        if key in ("escape", "left"):
            self.mode = "one" if self.mode == "stack" else "ranks"
            return "all" if self.mode == "ranks" else None
        if self.mode == "stack" and key in moves:
            self.top = max(0, self.top + moves[key])
        elif key == "v":
            self.is_whole = not self.is_whole
        return None

    def _ranks(self, sight: Sight, columns: int, room: int, *, color: bool) -> list[str]:
        """All of them, a line each, as many as there is room for around the chosen one."""
        if sight.grid is None:
            return []
        cells = self.shown(sight)
        by = f"sorted by {self.order}{', reversed' if self.is_reversed else ''}"
        some = f"{len(cells)} with {self.letters!r}" if self.letters or self.is_typing else ""
        head = [escape_controls(line) for line in head_of(sight.grid, columns)]
        what = ", ".join(filter(None, [some, by]))
        notes = [escape_controls(note) for note in sight.notes[:1]]
        head.append(cut_words("; ".join([what, *notes]), columns))
        left = max(1, room - len(head) - 2)
        marked = next((i for i, c in enumerate(cells) if c.endpoint == self.chosen), 0)
        first = min(max(0, marked - left + 1), max(0, len(cells) - left))
        part = cells[first : first + left]
        drawing = draw_live(part, sight.grid.cells, width=columns - 2, color=color)
        lines = [f"  {line}" for line in drawing.heading]
        for index, line in enumerate(drawing.rows):
            is_marked = first + index == marked
            lines.append(_marked(line, color=color) if is_marked else f"  {line}")
        return [*head, *lines]

    def _stack(self, sight: Sight, columns: int, room: int, *, color: bool) -> list[str]:
        """Where the threads are; the main thread, which comes last, at the foot of the screen."""
        if sight.stack is None:
            return ["looking where its threads are ..."]
        found, at_s = sight.stack
        text = render_backtrace(found, is_whole=self.is_whole, color=color)
        lines = [  # sentences whole, frames and lines of code as they are
            part
            for line in text.rstrip("\n").split("\n")
            for part in ([line] if _is_code(line) else wrap_text(line, columns))
        ]
        most = max(0, len(lines) - room + 1)
        self.top = min(self.top, most)
        when = f"as of {_clock(at_s)}"
        part = lines[self.top : self.top + room - 1]
        if len(part) < len(lines):
            when += f", lines {self.top + 1} to {self.top + len(part)} of {len(lines)}"
        return [when, *part]

    def _foot(self, sight: Sight, columns: int, *, color: bool) -> Iterator[str]:
        """What there is to know of the look, and the keys."""
        state = "paused" if self.is_paused else f"every {figure(sight.every_s, 2)} s"
        right = f"{state}  {_clock(sight.at_s)}"
        left = self.told or sight.trouble or ""
        style = _RED if sight.trouble and not self.told else _BOLD
        left = left or f"the same: {self.command(sight)}"
        left = cut_words(escape_controls(left), max(8, columns - len(right) - 2))
        gap = " " * max(1, columns - len(left) - len(right))
        yield f"{style}{left}{_RESET}{gap}{right}" if color and style else f"{left}{gap}{right}"
        keys = f"filter: {self.letters}_" if self.is_typing else ""
        words = _KEYS["filter" if self.is_typing else self.mode].split("  ")
        shown = wrap_words([keys, *words] if keys else words, columns, between="  ")[0].rstrip()
        yield f"{_DIM}{shown}{_RESET}" if color else shown


def named(endpoint: str, sight: Sight) -> str:
    """How one is called on the command line: by its pid, where its run folder is here."""
    cells = sight.grid.cells if sight.grid is not None else ()
    found = next((cell for cell in cells if cell.endpoint == endpoint), None)
    is_here = found is not None and found.pid is not None and endpoint.startswith("/")
    return str(found.pid) if is_here and found is not None else endpoint


def _one(sight: Sight, columns: int, room: int, *, color: bool) -> list[str]:
    """One process."""
    if sight.one is None:
        return ["looking ..."]
    text = render_overview(sight.one, width=columns, color=color, lines=room)
    return text.split("\n")


def _is_code(line: str) -> bool:
    """Whether a line of a stack is a frame or its source, and not what a thread waits for."""
    return line.startswith(("    ", "  File "))


def _words(cell: GridCell) -> str:
    """What a filter looks through."""
    state = "ended" if cell.state == "dead" else cell.state
    return f"{cell.name} {state} {cell.pid} {cell.host} {cell.job or ''} {cell.script}".lower()


def _marked(line: str, *, color: bool) -> str:
    """The line that keys are about."""
    if not color:
        return f"> {line}"
    return f"{_INVERSE}> {line.replace(_RESET, _RESET + _INVERSE)}{_RESET}"


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
