"""Records every optimizer step, and tells `Progress` when a training step has ended.

Rules of this file: runs in the training threads, inside torch's own global optimizer hooks.
A hook always returns None, because any other value would change the user's arguments.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ...ring import DONE, FAILED, NULL_INT
from ...tables import STAGES
from ..guard import Guard
from .memory import MemorySampler
from .progress import Progress
from .recording import MAX_DEPTH, Recording

OPTIMIZER = STAGES.index("optimizer")


class OptimizerSteps:
    """Hooks into every optimizer, and takes the hooks off again."""

    def __init__(self, recording: Recording, progress: Progress, memory: MemorySampler) -> None:
        self._recording = recording
        self._progress = progress
        self._memory = memory
        self._open: dict[int, tuple[int, int]] = {}  # by id(optimizer): word and start
        self._handles: list[Any] = []
        self.guard = Guard("optimizers", self.stop)

    def start(self) -> None:
        """Register the hooks, once."""
        if not self._handles:
            optimizer = sys.modules["torch.optim.optimizer"]
            self._handles = [
                optimizer.register_optimizer_step_pre_hook(self._before),
                optimizer.register_optimizer_step_post_hook(self._after),
            ]

    def stop(self) -> None:
        """Take the hooks off."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._open.clear()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer is about to step."""
        self.guard.run(self._open_row, optimizer)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has stepped."""
        self.guard.run(self._close_row, optimizer)

    def _open_row(self, optimizer: Any) -> None:
        recording, thread = self._recording, self._recording.threads.state
        name = recording.names.intern(type(optimizer).__name__)
        left = self._open.pop(id(optimizer), None)
        if left is not None:  # its last step raised, and torch called no hook
            recording.trace.close_row(left[0], FAILED, NULL_INT, NULL_INT)
        start = time.perf_counter_ns()
        word = recording.trace.open_row(
            start, self._progress.step, name, name, name, thread.native_id, OPTIMIZER,
            min(thread.depth, MAX_DEPTH), 0, 1,
        )  # fmt: skip
        self._open[id(optimizer)] = (word, start)

    def _close_row(self, optimizer: Any) -> None:
        recording, thread = self._recording, self._recording.threads.state
        name = recording.names.intern(type(optimizer).__name__)
        opened = self._open.pop(id(optimizer), None)
        if opened is not None:
            word, start = opened
            duration = time.perf_counter_ns() - start
            recording.trace.close_row(word, DONE, duration, self._memory.bytes)
        if thread.is_agents:
            return
        if self._progress.optimizer_stepped(optimizer, name, thread):
            recording.safe_points.step_ended()
