"""Runs one piece of work in the training thread, between two steps of the training.

Rules of this file: that is where a step has ended and the next call of the model has not begun:
by then the scheduler has been stepped and the gradient scaler updated, so that all of the state is
of one step. Where the model is not called before the next step ends, as in a script that calls
functions in its place, the work is done at that end. It is done once, or given up before it began.
Where several ranks are to do it at one step, a `Rendezvous` says which step's end it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .....safety.guard import pass_on
from .....safety.this_thread import is_called
from ....recording.safe_points import AGENT_THREAD_PREFIX, SafePoints
from .rendezvous import Rendezvous


class StepStart:
    """One piece of work on its way into the training thread.

    Attributes:
        pause_s: How long the training stood still for it; None before it has.
        is_at_call: Whether it was done as the model was about to be called.
        fault: What it has raised.
    """

    def __init__(
        self,
        points: SafePoints,
        thread_id: Callable[[], int],
        work: Callable[[], None],
        rendezvous: Rendezvous | None = None,
    ) -> None:
        self._points = points
        self._thread_id = thread_id
        self._work = work
        self._rendezvous = rendezvous
        self._lock = threading.RLock()  # a signal's handler may come back here
        self._is_taken = False
        self._has_ended = False
        self._is_over = threading.Event()
        self.pause_s: float | None = None
        self.is_at_call = False
        self.fault: Exception | None = None

    def begin(self) -> None:
        """Wait for the end of a step, and what follows it."""
        self._points.begin_job(self)
        self._points.begin_look(self)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the work is done; says whether it is."""
        return self._is_over.wait(timeout_s)

    def give_up(self) -> bool:
        """Do not do it any more; says whether that was in time."""
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
        self._leave()
        return not was_taken

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        if self._has_ended:
            self._do()
            return True
        self._has_ended = self._rendezvous is None or self._rendezvous.is_here()
        return False

    def failed(self, reason: str) -> None:
        """See `StepEndJob`; what the work raises is kept instead."""

    def root_called(self) -> None:
        """See `Look`."""
        is_trainings = threading.get_native_id() == self._thread_id()
        if (
            self._has_ended
            and is_trainings
            and not is_called(AGENT_THREAD_PREFIX)
            and not self._points.at_work.is_transformed()
        ):
            with self._points.others_held_up() as are_resting:
                if are_resting and self._do(at_call=True):
                    self._leave()

    def batch_came(self, batch: object) -> None:
        """See `Look`."""

    def _do(self, *, at_call: bool = False) -> bool:
        """Do the work, unless it has been done or given up; says whether this did it."""
        with self._lock:
            if self._is_taken:
                return False
            self._is_taken = True
        self.is_at_call = at_call
        started = time.perf_counter()
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the rim: it never reaches the training
            self.fault = error
            pass_on()
        finally:
            self.pause_s = time.perf_counter() - started
            self._is_over.set()
        if not at_call:
            self._points.end_look(self)
        return True

    def _leave(self) -> None:
        """Nothing more is waited for."""
        self._points.end_look(self)
        self._points.end_job(self)
