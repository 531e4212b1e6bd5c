"""The whole terminal in our hands, and given back as it was, however that ends.

Rules of this file: what is written here goes to the terminal alone. Only lines that have changed
are sent, so that a slow line to another machine carries little. Ctrl-C, Ctrl-Z, a hang-up and a
signal to end give the terminal back before anything else.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType
from typing import Any

from ...errors import UsageError
from ..output.drawing import can_draw
from ..render.text import fit_line, harmless, visible_width
from .keys import decode_keys

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""A terminal that knows them shows what stands between them at once."""
_ESCAPE = b"\x1b"
_REST_S = 0.03
"""How long what follows an escape may take: it is one key then."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_MOST_BYTES = 4096


def check_terminal() -> None:
    """Make sure that there is a terminal to draw on and to take keys from.

    Raises:
        UsageError: There is none.
    """
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise UsageError(
            "top needs a terminal, for its screen and for keys.",
            help="`probing -t all --watch 2` repeats its lines in a pipe or a file.",
        )
    if not can_draw(sys.stdout):
        raise UsageError(
            "top cannot draw on this terminal: TERM is dumb or not set.",
            help="`probing -t all --watch 2` prints lines only.",
        )


class FullScreen:
    """The terminal while a live view has it; use as a context manager.

    Attributes:
        is_interrupted: Whether Ctrl-C was typed.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self._shown: list[str] = []
        self._size = (0, 0)
        self._modes: list[Any] = []
        self._before: dict[signal.Signals, Any] = {}
        self._is_entered = False
        self._woken, self._waking = os.pipe()
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)

    def __enter__(self) -> FullScreen:  # noqa: PYI034 - `Self` is newer than Python 3.10
        self._modes = termios.tcgetattr(sys.stdin)
        self._take(signal.SIGINT, self._interrupt)
        try:
            self._take(signal.SIGWINCH, lambda *_: self.wake())
            self._take(signal.SIGTSTP, self._stop)
            for number in _ENDING:
                self._take(number, self._end)
            self._enter()
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._give_back()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            found = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            found = shutil.get_terminal_size()
        return max(1, found.columns), max(1, found.lines)

    def wake(self) -> None:
        """End a wait for keys; from any thread, and from handlers of signals."""
        with contextlib.suppress(OSError):  # it is full: it wakes in any case
            os.write(self._waking, b".")

    def keys(self, timeout_s: float) -> list[str]:
        """The keys typed since the last time; waits for one, for `wake`, or until the time is up.

        Raises:
            KeyboardInterrupt: There is nobody at the keyboard any more.
        """
        ready, _, _ = select.select([sys.stdin, self._woken], [], [], timeout_s)
        if self._woken in ready:
            with contextlib.suppress(OSError):
                os.read(self._woken, _MOST_BYTES)
        if sys.stdin not in ready:
            return []
        data = self._typed()
        if data.endswith(_ESCAPE) and select.select([sys.stdin], [], [], _REST_S)[0]:
            data += self._typed()
        return decode_keys(data)

    def show(self, lines: Sequence[str]) -> None:
        """Have these lines on the screen, the first at its top."""
        columns, rows = self.size
        if (columns, rows) != self._size:
            self._size, self._shown = (columns, rows), []
            self._write("\x1b[0m\x1b[2J")
        wanted = [fit_line(harmless(line), columns) for line in lines[:rows]]
        wanted += [""] * (rows - len(wanted))
        shown = [*self._shown, *[""] * (rows - len(self._shown))]
        changed = [
            _placed(row, line, columns)
            for row, (line, old) in enumerate(zip(wanted, shown, strict=False))
            if line != old
        ]
        if changed:
            self._write(f"{_BEGIN}{''.join(changed)}{_END}")
        self._shown = wanted

    def copy(self, text: str) -> None:
        """Offer a text to the clipboard of the terminal, also of one far away (OSC 52)."""
        code = base64.b64encode(text.encode("utf-8", "replace")).decode()
        self._write(f"\x1b]52;c;{code}\x07")

    def _typed(self) -> bytes:
        data = os.read(sys.stdin.fileno(), _MOST_BYTES)
        if not data:
            raise KeyboardInterrupt
        return data

    def _take(self, number: signal.Signals, handler: Any) -> None:
        self._before.setdefault(number, signal.signal(number, handler))

    def _enter(self) -> None:
        self._is_entered, self._size = True, (0, 0)
        tty.setcbreak(sys.stdin.fileno(), termios.TCSADRAIN)
        self._write(_ENTER)

    def _leave(self) -> None:
        """Give the terminal back; also where nobody is there any more."""
        if not self._is_entered:
            return
        self._is_entered = False
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(f"\x1b[0m{_LEAVE}")
            sys.stdout.flush()
        with contextlib.suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)

    def _give_back(self) -> None:
        """Leave the terminal, and the signals as they were; nothing comes in between."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTSTP])
        try:
            self._leave()
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        """Ctrl-C: whoever has the screen leaves it; a second one does not wait for that."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True
        self.wake()

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Ctrl-Z: stop without the screen, and go on with it."""
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stop)
        self._enter()
        self.wake()

    def _end(self, number: int, _: FrameType | None) -> None:
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _placed(row: int, line: str, columns: int) -> str:
    """A line at its place; what stood behind its end is taken away."""
    rest = "\x1b[K" if visible_width(line) < columns else ""
    return f"\x1b[{row + 1};1H{line}\x1b[0m{rest}"
