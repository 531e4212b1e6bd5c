"""Long answers through a pager, as git does.

Rules of this file: only on a terminal, and only what has more lines than it. Until that is known
the answer is held; then it goes to the pager as it comes. What goes to stderr meanwhile is shown
when the pager has ended, in its place where there was none.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

from ..render.text import visible_width
from ..time_limit import held_back
from . import terminal
from .drawing import can_draw

_DEFAULT = "less"
_NONE = frozenset({"", "cat"})
_ENVIRONMENT = {"LESS": "FRX", "LV": "-c"}
"""For less, where the user has not said: leave if it fits, keep colours, keep the screen."""
_CANNOT_RUN = (126, 127)


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """Have what is written meanwhile shown by a pager, if it is long and there is one."""
    command = _pager()
    if command is None:
        yield
        return
    held = Held(command, shutil.get_terminal_size())
    terminal.ways.collected = held
    try:
        yield
    finally:
        terminal.ways.collected = None
        held.finish()


def _pager() -> str | None:
    """The pager to use; None where the answer is not to be paged."""
    if not terminal.ways.is_paged or terminal.ways.output is not None:
        return None
    if not can_draw(sys.stdout):
        return None
    named = (os.environ.get(name) for name in ("PROBING_PAGER", "PAGER"))
    command = next((word for word in named if word is not None), _DEFAULT).strip()
    return None if command in _NONE or not _is_there(command) or not _has_keys() else command


def _is_there(command: str) -> bool:
    """Whether a command can be run, as far as that can be told."""
    try:
        words = shlex.split(command)
    except ValueError:  # the shell may know better
        return True
    program = next((word for word in words if "=" not in word), None)
    return program is not None and shutil.which(program) is not None


def _has_keys() -> bool:
    """Whether a pager could take keys: it opens the terminal for that."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class Held(terminal.Collected):
    """An answer on its way to the screen, or to a pager."""

    def __init__(self, command: str, size: os.terminal_size) -> None:
        super().__init__(takes_notes=True)
        self._command, self._size = command, size
        self._lines = 0
        self._notes: list[tuple[int, str]] = []
        self._pager: subprocess.Popen[str] | None = None

    def take(self, text: str) -> None:
        """More of the answer."""
        self.parts.append(text)
        if self._pager is not None:
            self._feed(text)
            return
        self._lines += sum(self._rows(line) for line in text.split("\n")) - 1
        if self._lines >= self._size.lines:
            self._start()

    def take_note(self, text: str) -> None:
        """Something for stderr, behind what of the answer came before it."""
        if self.parts:
            self._notes.append((len(self.parts), text))
        else:
            terminal.tell_now(text)

    def release(self) -> None:
        """Show what there is, and hold nothing more: the rest comes slowly."""
        terminal.ways.collected = None
        self.finish()

    def finish(self) -> None:
        """Show what is held; wait for the pager's end."""
        parts, self.parts = self.parts, []
        notes, self._notes = self._notes, []
        if self._pager is not None:
            code = self._wait(self._pager)
            self._pager = None
            if code in _CANNOT_RUN:
                terminal.draw("".join(parts))
            for _, text in notes:
                terminal.tell_now(text)
            return
        for index, part in enumerate(parts):
            for _, text in (note for note in notes if note[0] == index):
                terminal.tell_now(text)
            terminal.draw(part)
        for _, text in (note for note in notes if note[0] >= len(parts)):
            terminal.tell_now(text)

    def _rows(self, line: str) -> int:
        """How many lines of the screen one takes."""
        return max(1, -(-visible_width(line) // self._size.columns))

    def _start(self) -> None:
        terminal.stop_waiting()
        self._pager = subprocess.Popen(  # noqa: S602 - it is the user's own command
            self._command,
            shell=True,
            stdin=subprocess.PIPE,
            env={**_ENVIRONMENT, **os.environ},
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self._feed("".join(self.parts))

    def _feed(self, text: str) -> None:
        """More for the pager; the time for which its user reads is not counted."""
        assert self._pager is not None
        assert self._pager.stdin is not None
        with held_back(is_counted=False):
            self._pager.stdin.write(text)
            self._pager.stdin.flush()

    def _wait(self, pager: subprocess.Popen[str]) -> int:
        """Let the user read to the end; Ctrl-C is the pager's meanwhile."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError), held_back(is_counted=False):
                assert pager.stdin is not None
                pager.stdin.close()
            with held_back(is_counted=False):
                return pager.wait()
        finally:
            signal.signal(signal.SIGINT, before)
