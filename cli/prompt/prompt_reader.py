"""A prompt on a terminal: editing of several lines, history, completion from the live process.

Rules of this file: it imports prompt_toolkit, so only the command `repl` imports it, when a person
sits before it. The history is the user's own file, which nobody else can read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from ...errors import ProbingError
from ...tables import TABLES, Table
from ..completion import sql_words
from .prompt import COMMANDS, is_whole

if TYPE_CHECKING:
    from ...client.base import Process


class TerminalReader:
    """Reads what a person types."""

    def __init__(self, process: Process, session: str) -> None:
        self._label = process.label
        self._prompt: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_LiveCompleter(process, session),
            complete_while_typing=False,
            complete_in_thread=True,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=lambda width, *_: "... ".rjust(width),
        )

    def __iter__(self) -> Iterator[str]:
        """See `prompt.Reader`."""
        while True:
            try:
                yield self._prompt.prompt(f"{self._label}>>> ").rstrip("\n")
            except KeyboardInterrupt:  # the line is given up
                continue
            except EOFError:
                return


class _LiveCompleter(Completer):
    """Asks the process."""

    def __init__(self, process: Process, session: str) -> None:
        self._process = process
        self._session = session

    def _tables(self) -> tuple[Table, ...]:
        """All tables of the process; ours where it has gone."""
        try:
            found = [status.table() for status in self._process.tables().tables]
        except ProbingError:
            return TABLES
        return tuple(table for table in found if table is not None)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """What the last word can become."""
        line = document.current_line_before_cursor
        if document.text.lstrip().startswith("%sql "):
            for start, word in sql_words(line, self._tables()):
                yield Completion(word, start_position=start - len(line))
            return
        if document.text.lstrip().startswith("%"):
            for command in COMMANDS:
                if command.startswith(line):
                    yield Completion(command, start_position=-len(line))
            return
        try:
            found = self._process.complete(line, session=self._session)
        except ProbingError:  # the next line that is run will tell
            return
        for word in found.words:
            yield Completion(word, start_position=found.start - len(line))


def _keys() -> KeyBindings:
    """Enter ends what can be run, and else begins a new line; Tab completes or indents."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and not is_whole(buffer.text):
            line = buffer.document.current_line
            indent = line[: len(line) - len(line.lstrip())]
            buffer.insert_text("\n" + indent + ("    " if line.rstrip().endswith(":") else ""))
        elif buffer.document.is_cursor_at_the_end or "\n" not in buffer.text:
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.strip():
            buffer.start_completion(insert_common_part=True)
        else:
            buffer.insert_text("    ")

    return keys


class KeptHistory(FileHistory):
    """A history that goes without a line which cannot be written, as on a full disk."""

    def store_string(self, string: str) -> None:
        """See `FileHistory`."""
        with contextlib.suppress(OSError, UnicodeError):
            super().store_string(string)


def history_path() -> Path:
    """Where the history of prompts is kept; beginning with ``~`` for a user who has no home."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "probing" / "history"


def _history() -> History:
    """The history of former prompts; none where it cannot be kept."""
    path = history_path()
    if path.parts[0] == "~":
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
        finally:
            os.close(fd)
    except OSError:
        return InMemoryHistory()
    return KeptHistory(str(path))
