"""What is asked of a live table, and the wait for what only the training can show.

Rules of this file: the wait is in threads of the agent, and has an end: a deadline, proof that the
training stands still, the client's or the agent's leaving.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from ...errors import BadRequest
from ...tables import TABLES_BY_NAME
from ..recording.stillness import Stillness

if TYPE_CHECKING:
    from ..extending.extensions import Extensions
    from ..recording.no_training import NoTraining
    from ..recording.training import TorchTraining

WENT_ON = "the training went on just as it was to be looked at; ask again"
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
        own: What the script and plugins have added.
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
        own: Extensions | None = None,
    ) -> None:
        self.table, at, step = table.partition("@")
        self.at_step = _step(step) if at else None
        self.training = training
        self.wait_s = wait_s
        self.patient, self.only_random = patient, only_random
        self.own = own
        self.cancelled = threading.Event()
        self._stillness = Stillness(training)

    @property
    def is_ours(self) -> bool:
        """Whether it is about a table that probing itself declares."""
        return self.table in TABLES_BY_NAME

    def wait(
        self,
        is_over: threading.Event,
        *,
        patient: bool = False,
        is_void: Callable[[], bool] = lambda: False,
        within_s: float | None = None,
    ) -> Literal["gone", "still", "late"] | None:
        """Wait for the end of a look at the training; returns why it did not come.

        Args:
            patient: Whether also while the training makes no progress.
            is_void: Tells that it cannot come any more.
            within_s: How long at most, also while it makes no progress, which `finds_still` tells
                then; None for as long as the question may wait.
        """
        limit_s = (self.wait_s or 0.0) if within_s is None else within_s
        self._stillness, end = Stillness(self.training), time.monotonic() + limit_s
        while not is_over.wait(_POLL_S):
            if self.cancelled.is_set() or is_void():
                return "gone"
            if not patient and self._stillness.lasts(_STILL_S) and within_s is None:
                return "still"
            if time.monotonic() > end:
                return "late"
        return None

    def finds_still(self) -> bool:
        """Whether the training stands still as a wait is over that has watched it."""
        return self._stillness.is_proven()

    @contextmanager
    def beside(self, hold_s: float) -> Iterator[bool]:
        """Close the way back of a training that was found to stand still.

        Yields:
            Whether it still does: it may have gone on before its way was closed.
        """
        with self.training.safe_points.way_closed(hold_s):
            end, is_still = time.monotonic() + _STILL_S, self._stillness.is_proven()
            while not is_still and time.monotonic() < end and not self.cancelled.wait(_POLL_S):
                is_still = self._stillness.is_proven()
            yield is_still


def _step(text: str) -> int:
    """The step in ``table@step``.

    Raises:
        BadRequest: It is no number.
    """
    if not (text.isascii() and text.isdecimal()):
        raise BadRequest(f"a step is a number, and {text!r} is none")
    return int(text)
