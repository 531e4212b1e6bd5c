"""Writes python.actions: who has changed what in this training.

Rules of this file: as of `asked_record`; a row is completed once more when its action is undone.
"""

from __future__ import annotations

from typing import NamedTuple

from ...messages.about.act import Change
from ...tables import ACTION_STATES, ACTIONS
from ..audit.request_log import AskedRecord, Recorder, Sender

_FAILED = frozenset({"refused", "timed out", "failed"})


class Outcome(NamedTuple):
    """How an action ended.

    Attributes:
        state: One of `ACTION_STATES`.
        undoes: The number of the action that it has taken back.
    """

    state: str
    step: int | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    undoes: int | None = None
    waited_s: float | None = None
    pause_s: float | None = None
    ran_s: float | None = None


class ActionRecord(AskedRecord):
    """The ring of python.actions."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, ACTIONS, number="action_id", most_chars=2000, most_bytes=2 << 20)

    def begin(self, number: int, sender: Sender, name: str, arguments: str) -> int:
        """Write down that an action is asked for; returns the word of the row, 0 for none."""
        return self._open_call(sender, number, name, arguments)

    def end(self, word: int, outcome: Outcome) -> None:
        """Write down how it ended, or stands now."""
        self._complete(
            word,
            lambda: {
                "state": ACTION_STATES.index(outcome.state),
                "step": outcome.step,
                "changes": self._text("; ".join(change_text(c) for c in outcome.changes)),
                "notes": self._text("; ".join(outcome.notes)),
                "undoes": outcome.undoes,
                "waited_s": outcome.waited_s,
                "pause_s": outcome.pause_s,
            },
            failed=outcome.state in _FAILED,
            ran_s=outcome.ran_s,
        )


def change_text(change: Change) -> str:
    """One change in words."""
    before = "none" if change.before is None else change.before
    after = "none" if change.after is None else change.after
    return f"{change.what}: {before} -> {after}"
