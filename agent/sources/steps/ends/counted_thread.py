"""Which thread's steps are counted, where several train.

Rules of this file: runs in the training threads, once per step of an optimizer.
"""

from __future__ import annotations

import threading

from ...shared.recording import Recording
from ...shared.thread_state import ThreadState
from ...torch_types import Optimizer
from .members import Members

_PATIENCE = 8
"""How often an optimizer steps in another thread before that counts as the one that trains."""


class CountedThread:
    """That which stepped first, until another one steps again and again while it makes no step."""

    def __init__(self, recording: Recording, members: Members) -> None:
        self._recording = recording
        self._members = members
        self._elsewhere = 0
        self._counted: set[int] = set()

    def count(self, numbers: list[int]) -> None:
        """Optimizers of these numbers make the steps that are counted."""
        self._counted.update(numbers)

    def is_elsewhere(self, optimizer: Optimizer, thread: ThreadState) -> bool:
        """Whether an optimizer is of another training, beside the one whose steps are counted."""
        recording = self._recording
        counted = recording.training_thread
        is_ours = thread.native_id == counted or not recording.safe_points.stepping
        if is_ours or self._members.number_of(optimizer) in self._counted:
            self._elsewhere = 0
            return False
        self._elsewhere += 1
        is_there = any(other.native_id == counted for other in threading.enumerate())
        return is_there and self._elsewhere <= _PATIENCE
