"""Writes python.evals: who has run what in this process.

Rules of this file: as of `asked_record`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from ...tables import EVAL_STATES, EVALS
from ..audit.request_log import AskedRecord, Recorder, Sender


class Outcome(NamedTuple):
    """How code ended.

    Attributes:
        state: One of `EVAL_STATES`.
    """

    state: str
    error_type: str | None = None
    step: int | None = None
    is_held: bool | None = None
    waited_s: float | None = None
    ran_s: float | None = None
    runs: int = 1


Ended = Callable[[Outcome], None]
"""Takes how code ended, once."""


class EvalRecord(AskedRecord):
    """The ring of python.evals."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, EVALS, number="eval_id", most_chars=1000, most_bytes=4 << 20)

    def begin(self, number: int, sender: Sender, code: str) -> int:
        """Write down that code is about to be run; returns the word of the row, 0 for none."""
        data = code.encode("utf-8", "surrogatepass")
        return self._open(
            sender,
            number,
            lambda: {
                "code": self._text(code),
                "code_sha256": self._text(hashlib.sha256(data).hexdigest()[:16]),
                "code_bytes": len(data),
            },
        )

    def end(self, word: int, outcome: Outcome) -> None:
        """Write down how it ended."""
        self._complete(
            word,
            lambda: {
                "state": EVAL_STATES.index(outcome.state),
                "error_type": self._text(outcome.error_type),
                "step": outcome.step,
                "is_held": outcome.is_held,
                "waited_s": outcome.waited_s,
                "runs": outcome.runs,
            },
            failed=outcome.state != "done",
            ran_s=outcome.ran_s,
        )
