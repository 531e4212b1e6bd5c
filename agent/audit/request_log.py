"""Writes a row for each thing that somebody has asked of this process: who, what, how it ended.

Rules of this file: a row is opened before what is asked is done, and completed when it is over,
also more than once. What goes wrong here is a sentence among the agent's problems, and no reason to
refuse anything. The texts of one table together are bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...errors import ProbingError
from ...ring.format import DONE, FAILED, NULL_INT, NULL_NAME
from ...ring.writer import Names, RingWriter
from ...tables import Table

_ROWS = 1024


class Sender(NamedTuple):
    """Who has asked: a process on this machine, or an address.

    Attributes:
        uid: The user; None where it came by TCP.
        pid: The process; None where it came by TCP.
        address: The other end of a TCP connection.
    """

    uid: int | None = None
    pid: int | None = None
    address: str | None = None

    def __str__(self) -> str:
        if self.address is not None:
            return self.address
        return f"uid {self.uid}, pid {self.pid}" if self.uid is not None else "?"


class Recorder(Protocol):
    """Whose record it is: what gives the ring and its names.

    Attributes:
        problems: What could not be done, one sentence each.
    """

    problems: list[str]

    def names(self) -> Names:
        """The names that rows of the process refer to.

        Raises:
            OSError: They cannot be had.
        """

    def make_ring(self, table: Table, rows: int) -> RingWriter:
        """The ring of a table, with at least so many rows.

        Raises:
            RingError: There is no space for it.
        """


class AskedRecord:
    """The ring of a table that says who has asked; made with its first row."""

    def __init__(
        self, recorder: Recorder, table: Table, *, number: str, most_chars: int, most_bytes: int
    ) -> None:
        """Prepare, and make no file yet.

        Args:
            number: The column with the number of what was asked.
            most_chars: How much of one text is kept.
            most_bytes: How much of all texts together.
        """
        self._recorder = recorder
        self._table = table
        self._number_column = number
        self._most_chars, self._most_bytes = most_chars, most_bytes
        self._ring: RingWriter | None = None
        self._text_bytes = self._count = 0
        self._has_failed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Write no more; what is written stays."""
        with self._lock:
            if self._ring is not None:
                self._ring.close()
                self._ring = None

    def next_number(self) -> int:
        """The number of what is asked next; goes on behind an earlier agent of this process."""
        with self._lock:
            self._count = (self._count or self._last_number()) + 1
            return self._count

    def _last_number(self) -> int:
        """The largest number in the table; 0 where there is none, or it cannot be known."""
        try:
            ring = self._made()
        except (ProbingError, OSError, ValueError) as error:
            self._say(error)
            return 0
        # The newest row need not have the largest number, where several were asked at once.
        return max(ring.newest_of(self._number_column) or 0, ring.newest_word() >> 2)

    def _made(self) -> RingWriter:
        """The ring, made if there is none yet."""
        self._recorder.names()
        if self._ring is None:
            self._ring = self._recorder.make_ring(self._table, _ROWS)
        return self._ring

    def _say(self, error: Exception) -> None:
        """Tell once that the table cannot be written."""
        if not self._has_failed:
            self._has_failed = True
            what = f"{self._table.full_name} cannot be written: {error}"
            self._recorder.problems.append(what)

    def _open_call(self, sender: Sender, number: int, name: str, arguments: str) -> int:
        """Open the row of a call by name; see `_open`."""
        return self._open(
            sender,
            number,
            lambda: {"name": self._text(name), "arguments": self._text(arguments)},
        )

    def _open(self, sender: Sender, number: int, opening: Callable[[], dict[str, object]]) -> int:
        """Open a row; returns its word, 0 for none.

        Args:
            opening: Gives the opening columns but those of the sender, the number and the time.
        """
        with self._lock:
            try:
                ring = self._made()
                values: dict[str, object] = {
                    "uid": NULL_INT if sender.uid is None else sender.uid,
                    "pid": NULL_INT if sender.pid is None else sender.pid,
                    "address": self._text(sender.address),
                    "start_ns": time.perf_counter_ns(),
                    self._number_column: number,
                    **opening(),
                }
                return ring.open_named(values)
            except (ProbingError, OSError, ValueError) as error:
                self._say(error)
                return 0

    def _complete(
        self,
        word: int,
        closing: Callable[[], dict[str, object]],
        *,
        failed: bool,
        ran_s: float | None,
    ) -> None:
        """Complete a row.

        Args:
            closing: Gives the closing columns; those that are None are NULL.
            ran_s: How long it took.
        """
        with self._lock:
            if not word or self._ring is None:
                return
            try:
                values = {name: value for name, value in closing().items() if value is not None}
                if ran_s is not None:
                    values["duration_ns"] = int(ran_s * 1e9)
                self._ring.close_named(word, FAILED if failed else DONE, values)
            except (OSError, ValueError):  # no room for a text, or the agent has left meanwhile
                return

    def _text(self, text: str | None) -> int:
        """The number of a text; NULL when there is none, or no more room."""
        if not text:
            return NULL_NAME
        text, names = text[: self._most_chars], self._recorder.names()
        if not names.has(text):  # what is asked again and again takes no more room
            if self._text_bytes > self._most_bytes:
                return NULL_NAME
            self._text_bytes += len(text)
        return names.intern(text)
