"""The training step: what counts as one, and the rows of whole steps.

Rules of this file: runs in the training threads, a few times per step. A step ends when the
optimizer has stepped. With several optimizers one of them counts: the first to step, until
another one steps twice without it. Before any optimizer has stepped, a call of the first root
module that has parameters is a step of inference; not so while an optimizer exists and
gradients are on, because that is the first step of training in the making.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from ...ring import DONE, NULL_NAME
from ...tables import STAGES
from .memory import MemorySampler
from .recording import Recording, ThreadState

STEP_STAGE = STAGES.index("step")


class Progress:
    """Counts the steps and keeps the rows of the step in progress.

    Attributes:
        step: The number of the step in progress, from 0; read at every module call.
    """

    def __init__(self, recording: Recording, memory: MemorySampler) -> None:
        self.step = 0
        self._recording = recording
        self._memory = memory
        self._root: weakref.ref[Any] | None = None
        self._root_ids: tuple[int, int, int] | None = None
        self._steps_word: int | None = None  # the open row of python.steps
        self._trace_word: int | None = None  # that of torch_trace, once the root is known
        self._started_ns = 0
        self._is_inference = False
        self._stepped_since: set[int] = set()

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
        if root is not main:
            return
        self._recording.training_thread = thread.native_id
        if self._steps_word is None:
            self._is_inference = not (may_train or self._recording.safe_points.stepping)
            self._open(ids, thread)
        elif self._trace_word is None:
            self._open_trace(ids, thread.native_id)

    def root_left(self, root: Any) -> None:
        """A root module's call has ended: the end of a step of inference."""
        if self._is_inference and self._root is not None and self._root() is root:
            self._close(NULL_NAME, self._recording.training_thread)

    def optimizer_stepped(self, optimizer: Any, name: int, thread: ThreadState) -> bool:
        """An optimizer has stepped; returns whether that ended a training step.

        Args:
            name: The number of its class name.
        """
        if not self._counts(optimizer):
            return False
        self._recording.safe_points.stepping = True
        self._recording.training_thread = thread.native_id
        self._is_inference = False
        self._close(name, thread.native_id)
        self._open(self._root_ids, thread)
        return True

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
        steps = self._recording.steps
        self._steps_word = steps.open_row(self._started_ns, self.step, thread.native_id)

    def _open_trace(self, ids: tuple[int, int, int], thread_id: int) -> None:
        """Open the step's row in torch_trace."""
        self._trace_word = self._recording.trace.open_row(
            self._started_ns, self.step, *ids, thread_id, STEP_STAGE, 0, 0, 1
        )

    def _close(self, optimizer: int, thread_id: int) -> None:
        """Complete the rows of the step in progress, if the agent saw its start, and count it."""
        self._memory.sample()
        if self._steps_word is not None:
            took, memory = time.perf_counter_ns() - self._started_ns, self._memory.bytes
            if self._trace_word is None:  # a step without any module goes by its optimizer's name
                self._open_trace((optimizer, optimizer, optimizer), thread_id)
            word = self._trace_word or 0
            self._recording.trace.close_row(word, DONE, took, memory)
            self._recording.steps.close_row(self._steps_word, DONE, optimizer, took, memory)
            self._recording.trace.release_pages(word)
            self._steps_word = self._trace_word = None
        self.step += 1

    def abandon(self) -> None:
        """Recording stops: the rows of the step in progress stay open."""
        self._steps_word = self._trace_word = None
