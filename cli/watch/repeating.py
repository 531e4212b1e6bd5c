"""One command again and again: `--watch SECONDS`.

Rules of this file: on a terminal each look takes the place of the one before; in a pipe, and where
TERM is dumb, it follows it under the time of day. The first look may fail as the command would; a
later one that fails is told, and made again. It goes on until Ctrl-C, or until the one process that
is asked has ended.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ...errors import ProbingError, UsageError
from ...messages.frozen import dataclass
from ..ask.shield import LeftToChild
from ..output import terminal
from ..output.drawing import can_draw
from ..render.errors import render_error
from ..render.text import escape_controls, fit_line

if TYPE_CHECKING:
    from ..target import Target

_TICK_S = 0.2
"""How soon a new size of the terminal is noticed."""
_CLEAR, _HOME, _REST_OF_LINE, _REST = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"
_DRAWN = frozenset({"table", "text", "markdown", "json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What is looked at.

    Attributes:
        command: As it was typed.
        form: Its format.
        has_file: Whether the answer goes to a file.
    """

    command: str
    form: str
    has_file: bool
    target: Target


def repeat(look: Callable[[], Any], what: Repeated, every_s: float) -> int:
    """Look until there is nothing more to see.

    Returns:
        The exit code of the last look.

    Raises:
        UsageError: What it writes cannot be repeated.
        ProbingError: The first look fails.
    """
    if what.has_file:
        raise UsageError(
            "-o writes one answer, and --watch goes on: use one of them.",
            help="`> FILE` takes every look, each under the time of day.",
        )
    if what.form not in _DRAWN:
        raise UsageError(
            f"--watch repeats a table or JSON, and no {what.form}.",
            help="--json writes each look as an object on one line.",
        )
    is_drawn = can_draw(sys.stdout) and what.form != "json"
    showing: _Drawing | _Writing = _Drawing(what, every_s) if is_drawn else _Writing(what)
    with contextlib.closing(showing):
        for began in _times(every_s, showing):
            code = _one(look, showing, is_first=began is None)
            if _has_ended(what.target):
                terminal.note(f"{what.target.endpoints[0]} has ended: nothing changes any more")
                return code
    return 0


def _times(every_s: float, showing: _Drawing | _Writing) -> Iterator[float | None]:
    """When a look is due: None for the first, then the time that has passed."""
    yield None
    due = time.monotonic()
    while True:
        due = max(due + every_s, time.monotonic())
        while (left_s := due - time.monotonic()) > 0:
            time.sleep(min(_TICK_S, left_s))
            showing.follow_size()
        yield time.monotonic()


def _one(look: Callable[[], Any], showing: _Drawing | _Writing, *, is_first: bool) -> int:
    """One look; returns its exit code."""
    code = 0
    with terminal.collecting(notes=showing.takes_notes) as collected:
        try:
            look()
        except LeftToChild:
            raise
        except click.exceptions.Exit as leave:
            code = leave.exit_code
        except ProbingError as error:
            if is_first:
                raise
            code = error.exit_code
            collected.error = render_error(error, color=False)
    showing.show(collected)
    return code


def _has_ended(target: Target) -> bool:
    """Whether one process of this machine is asked, and has ended."""
    from ...client.connecting import connect

    if not (target.endpoints and target.is_single):
        return False
    try:
        folder = connect(target.endpoints[0], token=target.token).folder
    except ProbingError:
        return False
    return folder is not None and folder.has_ended()


class _Writing:
    """Looks one below the other."""

    takes_notes = False

    def __init__(self, what: Repeated) -> None:
        self._what = what
        self._error: str | None = None

    def show(self, collected: terminal.Collected) -> None:
        """Write a look; an error that goes on is told once."""
        if collected.error is not None:
            if collected.error != self._error:
                terminal.tell(f"{collected.error}\nnote: it is asked again")
            self._error = collected.error
            return
        self._error = None
        now = dt.datetime.now().astimezone()
        if self._what.form == "json":
            answer = json.loads(collected.text) if collected.text else None
            terminal.write_json_line(
                {"time": now.isoformat(timespec="milliseconds"), "answer": answer}
            )
            return
        terminal.write(f"== {now:%Y-%m-%d %H:%M:%S} ==\n{collected.text}\n")
        terminal.flush()

    def follow_size(self) -> None:
        """It has none."""

    def close(self) -> None:
        """Nothing to give back."""


class _Drawing:
    """Looks one in place of the other; the last one stays on the screen."""

    takes_notes = True

    def __init__(self, what: Repeated, every_s: float) -> None:
        self._head = f"every {every_s:g} s: {escape_controls(what.command)}"
        self._lines: list[str] = []
        self._size = (0, 0)
        self._has_new_size = False
        self._before = signal.signal(signal.SIGWINCH, self._note_size)
        terminal.ways.lines_taken = 2

    def show(self, collected: terminal.Collected) -> None:
        """Draw a look."""
        text = collected.text.rstrip("\n")
        if collected.error is not None:
            text = f"{collected.error}\nit is asked again"
        clock = time.strftime("%H:%M:%S")
        self._lines = [f"{clock}  {self._head}", "", *text.split("\n")]
        self._draw()

    def follow_size(self) -> None:
        """Draw the same anew where the terminal has become another one."""
        if self._has_new_size:
            self._has_new_size = False
            self._draw()

    def close(self) -> None:
        """Let signals be as they were."""
        signal.signal(signal.SIGWINCH, self._before)
        terminal.ways.lines_taken = 0

    def _note_size(self, *_: object) -> None:
        self._has_new_size = True

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        room = max(1, size.lines - 1)
        lines = self._lines[:room]
        if len(self._lines) > room:
            left = len(self._lines) - room + 1
            lines[-1] = f"… {left:,} more lines, for which the screen is too low"
        drawn = "".join(f"{fit_line(line, size.columns)}{_REST_OF_LINE}\n" for line in lines)
        begin = _HOME if size == self._size else _CLEAR + _HOME
        self._size = size
        terminal.draw(f"{begin}{drawn}{_REST}")
