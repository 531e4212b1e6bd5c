"""Writes probing.changes: who has changed what about the agent, or has had it do something.

Rules of this file: as of `asked_record`; the process's audit hooks are asked first, and one that
vetoes is on record.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from ...errors import ProbingError, Refused, UsageError, Vetoed
from ...tables import CHANGE_STATES, CHANGES
from .audit import ask_hooks
from .request_log import AskedRecord, Recorder, Sender


class ChangeRecord(AskedRecord):
    """The ring of probing.changes."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, CHANGES, number="change_id", most_chars=1000, most_bytes=1 << 20)

    @contextlib.contextmanager
    def change(
        self, sender: Sender, name: str, arguments: str = "", *, audited: bool = True
    ) -> Iterator[None]:
        """Write down what is done inside, from before it begins until it is over.

        Args:
            audited: Whether the audit event ``probing.NAME`` is to be raised; not if it has been.

        Raises:
            Vetoed: An audit hook refuses it; nothing has been done.
        """
        began = time.monotonic()
        word = self._open_call(sender, self.next_number(), name, arguments)
        try:
            if audited:
                ask_hooks(name, arguments)
            yield
        except BaseException as error:
            self._end(word, error, began)
            raise
        self._end(word, None, began)

    def _end(self, word: int, error: BaseException | None, began: float) -> None:
        """Complete it."""
        self._complete(
            word,
            lambda: {
                "state": CHANGE_STATES.index(_state_of(error)),
                "error": self._text(_text_of(error)),
            },
            failed=error is not None,
            ran_s=time.monotonic() - began,
        )


def _state_of(error: BaseException | None) -> str:
    """How it ended, as of `CHANGE_STATES`."""
    if error is None:
        return "done"
    if isinstance(error, Vetoed):
        return "vetoed"
    return "refused" if isinstance(error, (Refused, UsageError)) else "failed"


def _text_of(error: BaseException | None) -> str:
    """Why it is not done; a client that has gone away cancels what it has asked for."""
    if error is None:
        return ""
    return error.message if isinstance(error, ProbingError) else type(error).__name__
