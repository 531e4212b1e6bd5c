"""A terminal for the tests: a command that has it for its own, and what stands on its screen.

It knows what our live screen sends, and takes it for a mistake where something else is sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.harness.targets import DEADLINE_S, Target, wait_until

IN_FRONT = (  # who runs the tests in the background of a shell has Ctrl-C switched off
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " os.execv(sys.executable, [sys.executable, '-m', 'probing', *sys.argv[1:]])"
)
"""A program that runs a command as a shell does whose user can interrupt it."""
_OWN = (  # the terminal is to be its own, so that Ctrl-C and a change of size reach it
    f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {IN_FRONT}"
)
_SEQUENCE = re.compile(
    "\x1b\\[([0-9;?]*)([A-Za-z])|\x1b\\]52;c;([^\x07]*)\x07|([^\x1b])", re.DOTALL
)


_BEGIN, _ENDS = b"\x1b[?2026h", (b"\x1b[?2026l", b"\x1b[?1049l")
"""What a terminal shows at once begins so, and ends so, or with the screen that it is on."""
_SIGN_OF_LIFE = re.compile(r"(?:\r\x1b\[K[^\r\n]*)*\r\x1b\[K")


def without_waiting(shown: str) -> str:
    """What a terminal was sent, without the line that says what is waited for and goes again."""
    return _SIGN_OF_LIFE.sub("", shown)


def whole(data: bytes, *, is_over: bool) -> tuple[str, bytes]:
    """What can be drawn, and half a character, sequence or picture, which waits for its rest.

    Args:
        is_over: Whether nothing follows: then a picture is drawn as far as it came.
    """
    rest = b""
    begin = data.rfind(_BEGIN)
    if begin >= 0 and not is_over and not any(end in data[begin:] for end in _ENDS):
        data, rest = data[:begin], data[begin:]
    cut = data.rfind(b"\x1b")
    if cut >= 0 and not _SEQUENCE.match(data[cut:].decode("utf-8", "ignore")):
        data, rest = data[:cut], data[cut:] + rest
    for _ in range(1, 4):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(), rest
        data, rest = data[:-1], data[-1:] + rest
    return data.decode(), rest


class Terminal:
    """A probing command on a terminal of its own; use as a context manager.

    Attributes:
        process: The command.
        is_full: Whether it has the alternate screen.
        copied: What it has offered to the clipboard, in base64.
        sent: All that it has sent.
    """

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str],
        cwd: Path,
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self._main, side = pty.openpty()
        self.is_full = False
        self.copied: list[str] = []
        self.sent = ""
        self._pending = b""
        self._columns, self._lines = columns, lines
        self._main_rows: dict[int, str] = {}
        self._full_rows: dict[int, str] = {}
        self._at = (0, 0)
        self._set_size(columns, lines)
        self.modes = self._modes(side)
        plain = {k: v for k, v in env.items() if k not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN, *words],
            env={**plain, "TERM": "xterm-256color"},
            cwd=cwd,
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        self._side = side  # so that its modes can be asked after the end

    def __enter__(self) -> Terminal:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self._side)
        os.close(self._main)

    @property
    def screen(self) -> list[str]:
        """The lines that stand on the screen now."""
        self._take()
        rows = self._full_rows if self.is_full else self._main_rows
        return [rows.get(row, "").rstrip() for row in range(max(rows, default=-1) + 1)]

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.screen)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was: its own screen, its cursor, its modes."""
        self._take()
        shows_cursor = self.sent.rfind("\x1b[?25h") >= self.sent.rfind("\x1b[?25l")
        return not self.is_full and shows_cursor and self._modes(self._side) == self.modes

    def wait_for(self, fact: str | Callable[[list[str]], Any], what: str = "") -> list[str]:
        """Wait until a text stands on the screen, or a fact of its lines holds; the lines."""

        def holds() -> list[str] | None:
            lines = self.screen
            is_there = fact in "\n".join(lines) if isinstance(fact, str) else fact(lines)
            return lines if is_there else None

        try:
            return wait_until(holds, what or str(fact))
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{self.text}") from None

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._main, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; what stood on it is of no more use."""
        self._take()
        self._full_rows.clear()
        self._set_size(columns, lines)

    def end(self) -> int:
        """Wait for the command's end; its exit code."""
        wait_until(self._has_ended, "its end")
        return self.process.wait(DEADLINE_S)

    def _has_ended(self) -> bool:
        has_ended = self.process.poll() is not None
        self._take()  # also what came last; a full terminal would keep it from ending
        return has_ended

    def _set_size(self, columns: int, lines: int) -> None:
        self._columns, self._lines = columns, lines
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _modes(self, side: int) -> list[Any]:
        return termios.tcgetattr(side)

    def _take(self) -> None:
        """Take what was sent, and draw it."""
        while select.select([self._main], [], [], 0)[0]:
            try:
                data = os.read(self._main, 1 << 16)
            except OSError:  # nobody has the other side any more
                break
            self._pending += data
        text, self._pending = whole(self._pending, is_over=self.process.poll() is not None)
        self.sent += text
        for match in _SEQUENCE.finditer(text):
            self._draw(match)

    def _draw(self, match: re.Match[str]) -> None:
        numbers, letter, copied, character = match.groups()
        rows = self._full_rows if self.is_full else self._main_rows
        row, column = self._at
        if copied is not None:
            self.copied.append(copied)
        elif character == "\n":
            self._at = (row + 1, column)
        elif character == "\r":
            self._at = (row, 0)
        elif character == "\x07":
            pass
        elif character is not None:
            assert character >= " ", f"a control character was sent: {character!r}"
            line = rows.get(row, "").ljust(column)
            rows[row] = line[:column] + character + line[column + 1 :]
            self._at = (row, column + 1)
        else:
            self._obey(numbers, letter, rows)

    def _obey(self, numbers: str, letter: str, rows: dict[int, str]) -> None:
        row, column = self._at
        if (numbers, letter) in {("?1049", "h"), ("?1049", "l")}:
            self.is_full = letter == "h"
            self._full_rows.clear()
        elif letter == "H":
            place = [int(number) - 1 for number in numbers.split(";") if number]
            self._at = (place[0], place[1]) if place else (0, 0)
        elif letter == "K":
            rows[row] = rows.get(row, "")[: 0 if numbers == "2" else column]
        elif letter == "J":
            for other in [r for r in rows if numbers == "2" or r > row]:
                del rows[other]
        else:
            assert letter == "m" or numbers in {"?25", "?2026"}, f"sent: {numbers}{letter}"


@contextlib.contextmanager
def piped(target: Target, *words: str, text: bool = False) -> Iterator[subprocess.Popen[Any]]:
    """A command whose output goes into a pipe, in a group of processes of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", IN_FRONT, *words],
        env=target.env,
        cwd=target.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=text,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
