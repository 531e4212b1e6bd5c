"""The terminal: what stdout and stderr are, and the only writes to them.

Rules of this file: data goes to stdout, everything else to stderr. What the terminal is able
to do is asked once per command and handed to the renderers.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import field, fields
from typing import IO, TYPE_CHECKING, Any

from ...errors import ProbingError, UsageError
from ...messages.frozen import dataclass
from ..render.errors import render_error, render_note, to_paste
from ..render.text import CONTROLS, as_json, escape_controls, fit_line, harmless, json_value
from ..time_limit import held_back
from .drawing import can_draw

if TYPE_CHECKING:
    from .waiting import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What an output can show.

    Attributes:
        is_terminal: Whether a person looks at it.
        width: Columns it has; None for a file or pipe, which has any number.
        color: Whether it takes colours.
        height: Lines it has; None for a file or pipe.
    """

    is_terminal: bool
    width: int | None
    color: bool
    height: int | None = None

    def rows_beside(self, lines: int) -> int:
        """How many rows fit one screen beside so many other lines; 0, for all, where any do."""
        return 0 if self.height is None else max(_FEWEST_ROWS, self.height - lines - 1)


@dataclass(slots=True)
class Collected:
    """An answer that is not written yet.

    Attributes:
        parts: What there is of it.
        takes_notes: Whether what goes to stderr is part of it.
        error: Why there is none.
    """

    parts: list[str] = field(default_factory=list)
    takes_notes: bool = False
    error: str | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)

    def take(self, text: str) -> None:
        """More of the answer."""
        self.parts.append(text)

    def take_note(self, text: str) -> None:
        """Something for stderr."""
        self.parts.append(text)

    def release(self) -> None:
        """Nothing: it is all wanted."""


@dataclass(slots=True)
class Ways:
    """How the user wants this command to print, by its options.

    Attributes:
        verbose: Also what is folded otherwise.
        quiet: Without notes.
        color: ``auto``, ``always`` or ``never``.
        output: The file that takes the place of stdout.
        written: What is to be in it.
        asked: The words that name whom the command asks, to stand in a hint for ``ENDPOINT``.
        command: The words of the command itself, to stand in a hint for ``NAME ...``.
        lines_taken: Lines of the screen that are not for the answer.
        collected: Takes the answer in place of stdout.
        is_paged: Whether a long answer goes through a pager.
        waiting: Shows what is waited for.
        awaited: The innermost last: what that is.
        is_told: Whether a line of `progress` is shown now.
        drawn_on_stderr: Whether any such line stands there.
    """

    verbose: bool = False
    quiet: bool = False
    color: str = "auto"
    output: str | None = None
    written: list[bytes] = field(default_factory=list)
    asked: str | None = None
    command: str | None = None
    lines_taken: int = 0
    collected: Collected | None = None
    is_paged: bool = True
    waiting: Waiting | None = None
    awaited: list[str] = field(default_factory=list)
    is_told: bool = False
    drawn_on_stderr: bool = False


ways = Ways()
"""Of the command that this process runs."""

_on_stderr = threading.RLock()
"""Held by who draws a line there."""
_FEWEST_ROWS = 5
PLAIN = Screen(is_terminal=False, width=None, color=False)


def screen(stream: IO[str] | None = None) -> Screen:
    """What stdout, or another stream, can show."""
    always = ways.color == "always"
    is_file = stream is None and ways.output is not None
    if is_file or not (stream or sys.stdout).isatty():
        return Screen(is_terminal=False, width=None, color=True) if always else PLAIN
    import shutil

    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    color = always or (ways.color == "auto" and not plain)
    size = shutil.get_terminal_size()
    return Screen(
        is_terminal=True, width=size.columns, color=color, height=size.lines - ways.lines_taken
    )


def begin() -> None:
    """Print as commands do whose options say nothing of it."""
    fresh = Ways()
    for each in fields(fresh):
        setattr(ways, each.name, getattr(fresh, each.name))


@contextlib.contextmanager
def collecting(*, notes: bool) -> Iterator[Collected]:
    """Have what is written meanwhile collected, in place of stdout.

    Args:
        notes: Whether what goes to stderr, too.
    """
    collected = ways.collected = Collected(takes_notes=notes)
    try:
        yield collected
    finally:
        ways.collected = None


def draw(text: str) -> None:
    """Write what is harmless, or steers the terminal."""
    clear_wait()
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_to(path: str) -> None:
    """Have all that is written from now on in a file, which takes its name at `finish`."""
    ways.output = path


def finish() -> None:
    """Write out what is buffered, to the file that was asked for, if one was."""
    if ways.output is not None:
        from .files import write_file

        write_file(ways.output, ways.written)
        note(f"written to {ways.output}")
    flush()


def write(text: str) -> None:
    """Write text to stdout, ending it with a line break where it lacks one.

    On a terminal, control characters are written out; in a file or a pipe the text is as it is.
    """
    if text:
        _write(text if text.endswith("\n") else f"{text}\n")


def write_json(value: Any) -> None:
    """Write a value of plain parts to stdout as JSON; what is not plain, as the text it prints."""
    text = json.dumps(json_value(value), indent=2, ensure_ascii=False, default=str)
    # Line breaks stand between the values alone.
    write("\n".join(CONTROLS.sub(as_json, line) for line in text.split("\n")))


def write_json_line(value: Any) -> None:
    """Print a value as JSON on one line, at once: programs read such lines as they come."""
    _write(json.dumps(value, ensure_ascii=True) + "\n")


def write_chunks(chunks: Iterable[bytes]) -> None:
    """Write bytes to stdout as they come."""
    flush()
    if ways.output is not None or not (ways.collected or sys.stdout.isatty()):
        for chunk in chunks:
            _write_bytes(chunk)
        return
    decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
    for chunk in chunks:
        _write(decode(chunk))
    _write(decode(b"", final=True))


def flush() -> None:
    """Write out what is buffered."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _translate(error)


def discard_output() -> None:
    """Point stdout nowhere, so that the interpreter's last flush cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def note(*sentences: str) -> None:
    """Tell the person something about the answer, on stderr."""
    for sentence in () if ways.quiet else sentences:
        _to_stderr(render_note(sentence, width=screen(sys.stderr).width))


def tell(text: str) -> None:
    """Put lines on stderr as they are."""
    _to_stderr(text)


def go_live() -> None:
    """Show what there is at once from now on: the rest comes bit by bit, or is not ours."""
    stop_waiting()
    if ways.collected is not None:
        ways.collected.release()


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say what is waited for within, where that takes long and somebody looks."""
    ways.awaited.append(what)
    try:
        yield
    finally:
        ways.awaited.remove(what)


def start_waiting() -> None:
    """Show what is waited for where that takes long, and somebody looks."""
    if can_draw(sys.stderr) and not ways.quiet:
        from .waiting import Waiting

        ways.waiting = Waiting(show_wait, clear_wait)
        ways.waiting.start()


def stop_waiting() -> None:
    """Show no more that something is waited for."""
    waiting, ways.waiting = ways.waiting, None
    if waiting is not None:
        waiting.stop()


def show_wait(seconds: float) -> None:
    """Draw the line of `waiting`, unless a command tells its progress itself."""
    with _on_stderr:
        if not ways.is_told and ways.awaited:
            _draw_line(f"{ways.awaited[-1]} … {seconds:.0f} s")


def clear_wait() -> None:
    """Take that line away."""
    with _on_stderr:
        if not ways.is_told:
            _draw_line("")


def _draw_line(text: str) -> None:
    """One line of a terminal's stderr, in place of what was there."""
    if ways.drawn_on_stderr or text:
        ways.drawn_on_stderr = bool(text)
        width = screen(sys.stderr).width or 80
        with contextlib.suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{fit_line(escape_controls(text), width - 1)}")
            sys.stderr.flush()


def progress(text: str) -> None:
    """Show on a terminal's stderr how far something is, in place of what was shown before.

    Args:
        text: The line; an empty one takes the last away.
    """
    if can_draw(sys.stderr) and not ways.quiet and not ways.lines_taken:
        with _on_stderr:
            ways.is_told = bool(text)
            _draw_line(text)


def complain(error: ProbingError, *, endpoint: str | None = None) -> None:
    """Print an error on stderr.

    Args:
        endpoint: Where it happened, when several were asked.
    """
    for name in ("help", "message"):
        hint = to_paste(getattr(error, name), asked=ways.asked, command=ways.command)
        setattr(error, name, hint)
    there = screen(sys.stderr)
    _to_stderr(render_error(error, endpoint=endpoint, color=there.color, width=there.width))


def _write(text: str) -> None:
    if ways.output is not None:
        ways.written.append(text.encode("utf-8", "backslashreplace"))
        return
    text = harmless(text) if sys.stdout.isatty() else text
    if ways.collected is not None:
        ways.collected.take(text)
        return
    clear_wait()
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


def _write_bytes(data: bytes) -> None:
    if ways.output is not None:
        ways.written.append(data)
        return
    clear_wait()
    with _writing():
        left = memoryview(data)
        while left:  # without a buffer (PYTHONUNBUFFERED) a signal may cut a write short
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Write to stdout; the time for which its reader keeps the command waiting is not counted."""
    try:
        with held_back(is_counted=not _has_reader(sys.stdout)):
            yield
    except OSError as error:
        _translate(error)


def _has_reader(stream: IO[str]) -> bool:
    """Whether somebody takes what is written there as it comes."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # it has no descriptor
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()


def _to_stderr(text: str) -> None:
    """Write lines to stderr; when nobody can read them, there is nobody to tell, either."""
    if ways.collected is not None and ways.collected.takes_notes:
        ways.collected.take_note(f"{text}\n")
    else:
        tell_now(f"{text}\n")


def tell_now(text: str) -> None:
    """Write to stderr what was held, or has not to be."""
    clear_wait()
    with _on_stderr, contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _translate(error: OSError) -> None:
    """Raise what a failed write to stdout means."""
    if isinstance(error, BrokenPipeError):
        raise error
    discard_output()
    raise UsageError(f"cannot write to standard output: {error.strerror}.") from None
