"""What is asked of a live table, and the wait for what only the training can show.

Rules of this file: the wait is in threads of the agent, and has an end: a deadline, proof that the
training stands still, the client's or the agent's leaving.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ...errors import BadRequest
from ..recording.stillness import Stillness

if TYPE_CHECKING:
    from ..recording.no_training import NoTraining
    from ..recording.source import SourceReport
    from ..recording.training import TorchTraining

_POLL_S = 0.05
_STILL_S = 2.0
"""How long the training must have been proven to stand still before nobody waits any more."""


class LiveQuestion:
    """What is asked of a live table.

    Attributes:
        wait_s: How long what only the training can show may be waited for; None: not at all.
        patient: Whether to wait even while the training makes no progress.
        only_random: Whether of checksums those of random states will do.
        at_step: The step at whose end to look, for what is looked at there; None for the next one.
        own_reports: Tells how the tables stand that the script and plugins have declared.
        cancelled: Set when nobody waits for the answer any more.
    """

    def __init__(
        self,
        *,
        table: str,
        training: TorchTraining | NoTraining,
        wait_s: float | None = None,
        patient: bool = False,
        only_random: bool = False,
        own_reports: Callable[[], list[SourceReport]] = list,
    ) -> None:
        self.table, at, step = table.partition("@")
        self.at_step = _step(step) if at else None
        self.training = training
        self.wait_s = wait_s
        self.patient, self.only_random = patient, only_random
        self.own_reports = own_reports
        self.cancelled = threading.Event()

    def wait(
        self,
        is_over: threading.Event,
        *,
        patient: bool = False,
        is_void: Callable[[], bool] = lambda: False,
    ) -> Literal["gone", "still", "late"] | None:
        """Wait for the end of a look at the training; returns why it did not come.

        Args:
            patient: Whether also while the training makes no progress.
            is_void: Tells that it cannot come any more.
        """
        stillness, end = Stillness(self.training), time.monotonic() + (self.wait_s or 0.0)
        while not is_over.wait(_POLL_S):
            if self.cancelled.is_set() or is_void():
                return "gone"
            if not patient and stillness.lasts(_STILL_S):
                return "still"
            if time.monotonic() > end:
                return "late"
        return None


def _step(text: str) -> int:
    """The step in ``table@step``.

    Raises:
        BadRequest: It is no number.
    """
    if not (text.isascii() and text.isdecimal()):
        raise BadRequest(f"a step is a number, and {text!r} is none")
    return int(text)
