"""The training step: what counts as one, and the rows of whole steps.

Rules of this file: runs in the training threads, a few times per step. A step ends when the
optimizer has stepped. With several optimizers one of them counts: the first to step, until
another one steps twice without it. Before any optimizer has stepped, a call of the first root
module that has parameters is a step of inference; not so while an optimizer exists and
gradients are on, because that is the first step of training in the making.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from ....ring import DONE, NULL_FLOAT, NULL_NAME
from ....tables import STAGES
from ..memory.sampler import MemorySampler
from .phases import OPTIMIZER
from .recording import Recording, ThreadState
from .step_rows import StepEnd

STEP_STAGE = STAGES.index("step")


class Progress:
    """Counts the steps and keeps the rows of the step in progress.

    Attributes:
        on_step: Called when a training step has ended and the next one begun, with the words of
            both steps' rows in torch_trace and the time it took.
    """

    def __init__(self, recording: Recording, memory: MemorySampler) -> None:
        self._recording = recording
        self._memory = memory
        self._root: weakref.ref[Any] | None = None
        self._root_ids: tuple[int, int, int] | None = None
        self._is_open = False
        self._trace_word: int | None = None  # the open row of torch_trace, once the root is known
        self._started_ns = 0
        self._is_inference = False
        self._is_marked = False
        self._stepped_since: set[int] = set()
        self.on_step: Callable[[int, int, int], None] = lambda *_: None

    def root_called(
        self, root: Any, ids: tuple[int, int, int], thread: ThreadState, *, may_train: bool
    ) -> None:
        """A root module is about to be called, outside of any backward pass.

        Args:
            ids: The numbers of the root's name, class and root class.
            may_train: Whether gradients are on and an optimizer exists.
        """
        main = self._root() if self._root is not None else None
        if main is None and next(root.parameters(), None) is not None:
            self._root, self._root_ids, main = weakref.ref(root), ids, root
            self._recording.model = self._root
            self._recording.rows.trains(root)
        if root is not main:
            return
        self._recording.training_thread = thread.native_id
        if not self._is_open:
            self._is_inference = not (may_train or self._recording.safe_points.stepping)
            self._open(ids, thread)
            if thread.optimizing == self._recording.session:  # the optimizer calls the model
                self._recording.rows.phases.enter(OPTIMIZER, self._started_ns)
        elif self._trace_word is None:
            self._open_trace(ids, thread.native_id)

    def root_left(self, root: Any) -> None:
        """A root module's call has ended: the end of a step of inference."""
        if self._is_inference and self._root is not None and self._root() is root:
            self._close(NULL_NAME, NULL_FLOAT, self._recording.training_thread)

    def optimizer_stepped(self, optimizer: Any, name: int, thread: ThreadState) -> bool:
        """An optimizer has stepped; returns whether that ended a training step.

        Args:
            name: The number of its class name.
        """
        if self._is_marked or not self._counts(optimizer):
            return False
        self._recording.safe_points.stepping = True
        self._recording.training_thread = thread.native_id
        held = self._recording.held_lr
        lr = _learning_rate(optimizer) if held is None else held
        self._end_step(name, lr, thread)
        return True

    def step_marked(self, thread: ThreadState) -> None:
        """The script says that a step ends; from now on only it does."""
        self._is_marked = True
        self._recording.safe_points.stepping = True
        self._recording.training_thread = thread.native_id
        self._end_step(NULL_NAME, NULL_FLOAT, thread)

    def _end_step(self, optimizer: int, lr: float, thread: ThreadState) -> None:
        """A step of training ends, and the next one begins."""
        self._is_inference = False
        first, started_ns = self._trace_word, self._started_ns
        self._close(optimizer, lr, thread.native_id)
        self._open(self._root_ids, thread)
        if first is not None and self._trace_word is not None:
            self.on_step(first, self._trace_word, self._started_ns - started_ns)

    def _counts(self, optimizer: Any) -> bool:
        """Whether this optimizer's steps are the ones that count."""
        counted = self._recording.optimizer
        current = counted() if counted is not None else None
        if current is not None and current is not optimizer:
            if id(optimizer) not in self._stepped_since:
                self._stepped_since.add(id(optimizer))
                return False
            self._recording.optimizer = None
        if self._recording.optimizer is None or current is None:
            self._recording.optimizer = weakref.ref(optimizer)
        self._stepped_since.clear()
        return True

    def _open(self, ids: tuple[int, int, int] | None, thread: ThreadState) -> None:
        """Open the rows of a step; that of torch_trace waits until the root's name is known."""
        self._started_ns = time.perf_counter_ns()
        if ids is not None:
            self._open_trace(ids, thread.native_id)
        recording = self._recording
        recording.rows.open(self._started_ns, recording.step, thread.native_id)
        if recording.ooms is not None and recording.rows.on_device:
            recording.ooms.step_began()
        self._is_open = True

    def _open_trace(self, ids: tuple[int, int, int], thread_id: int) -> None:
        """Open the step's row in torch_trace."""
        self._trace_word = self._recording.trace.open_row(
            self._started_ns, self._recording.step, *ids, thread_id, STEP_STAGE, 0, 0, 1
        )

    def _close(self, optimizer: int, lr: float, thread_id: int) -> None:
        """Complete the rows of the step in progress, if the agent saw its start, and count it."""
        recording = self._recording
        if self._is_open:
            now = time.perf_counter_ns()
            if now > self._memory.due_ns:
                self._memory.sample()
            self._memory.step_ended()
            memory = self._memory.bytes
            took = now - self._started_ns
            if self._trace_word is None:  # a step without any module goes by its optimizer's name
                self._open_trace((optimizer, optimizer, optimizer), thread_id)
            word = self._trace_word or 0
            recording.trace.close_row(word, DONE, took, memory)
            trained = None if self._is_inference else recording.model
            model = trained() if trained is not None else None
            recording.rows.close(now, StepEnd(took, memory, optimizer, lr, model))
            recording.trace.release_pages(word)
            self._is_open, self._trace_word = False, None
        recording.step += 1

    def abandon(self) -> None:
        """Recording stops: the rows of the step in progress stay open."""
        self._is_open, self._trace_word = False, None
        self._recording.rows.abandon()


def _learning_rate(optimizer: Any) -> float:
    """That of the first parameter group; NULL where it is a tensor on a device."""
    lr = optimizer.param_groups[0].get("lr")
    if isinstance(lr, float | int):
        return float(lr)
    is_here = type(lr) is sys.modules["torch"].Tensor and lr.device.type == "cpu"
    return float(lr) if is_here else NULL_FLOAT
