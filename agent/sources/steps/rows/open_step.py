"""The rows of the step in progress, in python.torch_trace and python.steps.

Rules of this file: runs in the training thread; does what `Progress` says, and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .....ring.format import DONE, NULL_FLOAT, NULL_NAME
from .....tables import STAGES
from ...memory.sampler import MemorySampler
from ...shared.recording import Recording
from ..evaluations import Wait
from ..phases import FORWARD
from .step_places import StepEnd

STEP_STAGE = STAGES.index("step")
Ids = tuple[int, int, int]
"""The numbers of a root module's name, class and root class."""


class Ended(NamedTuple):
    """What is known of a step that ends.

    Attributes:
        optimizer: The number of the class of the optimizer that ended it.
        missed: How many more steps have ended with it.
        now_ns: When; None for now.
    """

    optimizer: int = NULL_NAME
    lr: float = NULL_FLOAT
    missed: int = 0
    now_ns: int | None = None


class OpenStep:
    """The step in progress, if its beginning was seen.

    Attributes:
        is_open: Whether there is one.
        started_ns: When it began.
        trace_word: Its row in torch_trace; None before the name of the model is known.
    """

    def __init__(self, recording: Recording, memory: MemorySampler) -> None:
        self._recording = recording
        self._memory = memory
        self.is_open = False
        self.started_ns = 0
        self.trace_word: int | None = None
        self._trace_row: tuple[int, ...] = ()
        self._inferred: tuple[int | None, int] | None = None

    def open(self, ids: Ids | None, thread_id: int, now_ns: int | None = None) -> None:
        """Open the rows of a step; that of torch_trace waits until the root's name is known.

        One that is open, a call of a model that failed, begins anew.
        """
        if self.is_open:
            self.restart(time.perf_counter_ns(), ())
            return
        self.started_ns = time.perf_counter_ns() if now_ns is None else now_ns
        self._inferred = None
        if ids is not None:
            self.open_trace(ids, thread_id)
        recording = self._recording
        recording.rows.open(self.started_ns, recording.now.step, thread_id)
        if recording.ooms is not None and recording.rows.on_device:
            recording.ooms.step_began()
        self.is_open = True

    def open_trace(self, ids: Ids, thread_id: int) -> None:
        """Open the step's row in torch_trace."""
        row = self._trace_row = (self._recording.now.step, *ids, thread_id, STEP_STAGE, 0, 0, 1)
        self.trace_word = self._recording.trace.open_row(self.started_ns, *row)

    def forward_ns(self) -> int:
        """How long the calls of roots in the step so far took."""
        return self._recording.rows.phases.spent_ns[FORWARD] if self.is_open else 0

    def restart(self, start_ns: int, waits: Sequence[Wait]) -> None:
        """What lies before was no part of the step, but for some batches: this thread begins it."""
        if not self.is_open:
            return
        self.started_ns, recording = start_ns, self._recording
        thread_id = recording.threads.state.native_id
        recording.rows.restart(start_ns, thread_id)
        if self.trace_word is not None:
            step, *ids, _, stage, depth, recomputed, one = self._trace_row
            self._trace_row = (step, *ids, thread_id, stage, depth, recomputed, one)
            recording.trace.reopen_row(self.trace_word, start_ns, *self._trace_row)
        for wait in waits:
            recording.rows.count_wait(wait)

    def close(self, ended: Ended, thread_id: int, model: Any, models: int) -> None:
        """Complete the rows, if they are there, and count the step.

        Args:
            model: The root module that was trained; None for none.
            models: The number of the name of all that were.
        """
        recording, (optimizer, lr, missed, now_ns) = self._recording, ended
        if self.is_open:
            now = time.perf_counter_ns()
            memory = self._memory.step_ended(now)
            now = now if now_ns is None else now_ns
            took, trace = now - self.started_ns, recording.trace
            if self.trace_word is None:  # a step without any module goes by its optimizer's name
                self.open_trace((optimizer,) * 3, thread_id)
            word = self.trace_word or 0
            trace.close_row(word, DONE, took, memory)
            recording.rows.close(now, StepEnd(took, memory, optimizer, lr, model, models))
            trace.release_pages(word)
            self.is_open, self.trace_word = False, None
        recording.ended_step = recording.now.step
        recording.now.step += 1 + missed

    def infer(self, thread_id: int, models: int) -> None:
        """The call of a model has ended that was a step of inference, as far as is known."""
        inferred = (self.trace_word, self.started_ns)
        self.close(Ended(), thread_id, None, models)
        self._recording.rows.last_read = None  # the next one does not follow at once
        self._inferred = inferred

    def resume(self) -> bool:
        """What was a step of inference is one of training; returns whether there was one."""
        if self._inferred is None:
            return False
        (self.trace_word, self.started_ns), self._inferred = self._inferred, None
        self._recording.step -= 1
        self._recording.rows.resume(self.started_ns)
        if self.trace_word is not None:
            self._recording.trace.reopen_row(self.trace_word, self.started_ns, *self._trace_row)
        self.is_open = True
        return True

    def abandon(self) -> None:
        """Recording stops: the rows stay open."""
        self.is_open, self.trace_word, self._inferred = False, None, None
        self._recording.ended_step = None
        self._recording.rows.abandon()
