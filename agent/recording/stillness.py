"""Watches a training until it is proven that it makes no progress.

Rules of this file: asks the kernel and the interpreter; waits for nothing, touches nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from ...linux import process
from ...safety.this_thread import thread_name
from .safe_points import AGENT_THREAD_PREFIX, SafePoints, Visit
from .training_thread import number_of, threads_in_torch

STILL_S = 1.0
"""How long the training thread must be without progress before it counts as stuck."""


class Training(Protocol):
    """What an evaluation must know about the training in this process."""

    safe_points: SafePoints

    def is_moving(self) -> bool:
        """Whether a module call has ended in the last `STILL_S` seconds."""

    def thread_id(self) -> int:
        """The training thread's number in the kernel; 0 while there is none."""

    def step(self) -> int | None:
        """The step in progress; None while none is counted."""

    def names(self) -> Mapping[str, Any]:
        """Objects seen in recorded calls, such as ``model``."""

    def use_device(self) -> None:
        """Have this thread use the training's device: each thread has one of its own."""


class Stillness:
    """Watches the training thread until it is proven that it makes no progress."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._cpu = -1.0
        self._since = 0.0
        self._proven_since: float | None = None

    def lasts(self, seconds: float) -> bool:
        """Whether it was proven each time that this was asked, for longer than so many seconds."""
        if not self.is_proven():
            self._proven_since = None
            return False
        now = time.monotonic()
        if self._proven_since is None:
            self._proven_since = now
        return now - self._proven_since > seconds

    def is_proven(self) -> bool:
        """Whether nothing of the training changes a tensor now.

        Outside of torch it is enough that no module call has ended for a second: a script that is
        busy with something else may go on at any moment, so the way back must be closed for as
        long as somebody works beside it. While any thread is inside a module, a backward pass or an
        optimizer, the whole process must also have used no processor time for as long, except in
        the agent's own threads. While the training captures its work on a device, whatever else is
        done there would break the capture.
        """
        if self._training.is_moving() or self._training.safe_points.at_work.is_here():
            self._cpu = -1.0
            return False
        if not threads_in_torch():
            return True
        cpu, now = _cpu_of_others(), time.monotonic()
        if self._cpu < 0 or cpu - self._cpu > 0.02:
            self._cpu, self._since = cpu, now
        return now - self._since >= STILL_S

    def closes_way(self, visit: Visit) -> bool:
        """Whether code may run beside the training: it stands still, and cannot go on meanwhile.

        It may have gone on between the proof and the closing, so the proof is made again; where
        that fails, the training comes to a hold at its next way into torch.
        """
        if not self.is_proven():
            return False
        visit.close_way_back()
        return self.is_proven()


def _cpu_of_others() -> float:
    """Processor time used by all threads of the process but the agent's, in seconds."""
    own = {
        number_of(t)
        for t in threading.enumerate()
        if thread_name(t).startswith(AGENT_THREAD_PREFIX)
    }
    facts = process.threads(os.getpid())
    return sum(fact.cpu_s for number, fact in facts.items() if number not in own)
