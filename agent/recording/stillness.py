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
from ...linux.process import ThreadFacts
from ...safety.this_thread import thread_name
from ...stacks.waits import own_s
from .safe_points import AGENT_THREAD_PREFIX, SafePoints, Visit
from .training_thread import number_of, threads_in_torch

STILL_S = 1.0
"""How long the training thread must be without progress before it counts as stuck."""
_BUSY_S = 0.02
"""How much processor time a training that stands still may use meanwhile."""
_WAITED_PART = 0.2
"""For which part of the time between two looks its threads may have waited for a processor each,
as one does that wakes up now and then; for `_BUSY_S` in any case."""
_READY = "R"
"""The letter of a thread that runs, or waits for a processor."""
_LATE_S = 0.5
"""How long after one look at it the next still tells of the time between."""
_AWAKE_S = 0.1
"""For how long a training that stands still outside of torch must have been able to go on."""


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
        self._first: dict[int, ThreadFacts] | None = None
        self._last: dict[int, ThreadFacts] = {}
        self._since = self._asked = 0.0
        self._was_inside = False
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

        Outside of torch it is enough that no module call has ended for a second, though its thread
        could have gone on for a moment: a script that is busy with something else may do so at any
        moment, so the way back must be closed for as long as somebody works beside it. While any
        thread is inside a module, a backward pass or an optimizer, the whole process must also have
        used no processor time for as long, nor waited for a processor, except in the agent's own
        threads. While the training captures its work on a device, whatever else is done there would
        break the capture. Where this is asked late, the process may have been stopped for as long,
        or got no processor: that proves nothing.
        """
        if self._training.is_moving() or self._training.safe_points.at_work.is_here():
            self._first = None
            return False
        is_inside = bool(threads_in_torch())
        if not (is_inside or self._training.thread_id()):
            return True  # nobody trains
        passed_s = time.monotonic() - self._asked
        seen, now = _others(), time.monotonic()
        if (
            self._first is None
            or passed_s > _LATE_S
            or is_inside != self._was_inside
            or (is_inside and self._is_at_work(self._first, seen, passed_s))
        ):
            self._first, self._since = seen, now
        self._last, self._asked, self._was_inside = seen, now, is_inside
        if is_inside:
            return now - self._since >= STILL_S
        return self._could_go_on(self._first, seen, now - self._since)

    def _could_go_on(
        self, before: dict[int, ThreadFacts], seen: dict[int, ThreadFacts], passed_s: float
    ) -> bool:
        """Whether the training thread has had time to itself, in which it called no module."""
        number = self._training.thread_id()
        if number not in before or number not in seen:
            return passed_s >= _AWAKE_S
        return own_s(before[number], seen[number], passed_s) >= _AWAKE_S

    def _is_at_work(
        self, before: dict[int, ThreadFacts], seen: dict[int, ThreadFacts], passed_s: float
    ) -> bool:
        """Whether a thread has worked, or was kept from it since the last look."""
        return _used_s(before, seen) > _BUSY_S or self._has_starved(seen, passed_s)

    def _has_starved(self, seen: dict[int, ThreadFacts], passed_s: float) -> bool:
        """Whether a thread was kept from working since the last look."""
        limit_s = max(_BUSY_S, _WAITED_PART * passed_s)
        last = self._last
        return any(_is_starved(last[n], fact, limit_s) for n, fact in seen.items() if n in last)

    def closes_way(self, visit: Visit) -> bool:
        """Whether code may run beside the training: it stands still, and cannot go on meanwhile.

        It may have gone on between the proof and the closing, so the proof is made again; where
        that fails, the training comes to a hold at its next way into torch.
        """
        if not self.is_proven():
            return False
        visit.close_way_back()
        return self.is_proven()


def _used_s(before: dict[int, ThreadFacts], now: dict[int, ThreadFacts]) -> float:
    """Processor time that living threads have used since; one that has ended hides no other's."""
    used = {number: fact.cpu_s for number, fact in before.items()}
    return sum(max(0.0, fact.cpu_s - used.get(number, 0.0)) for number, fact in now.items())


def _is_starved(before: ThreadFacts, now: ThreadFacts, limit_s: float) -> bool:
    """Whether a thread is ready to run and gets hardly a processor, or none, beside other work.

    The kernel counts a wait for a processor once it is over; one that goes on shows by the thread's
    state, if it has not slept between.
    """
    if now.state == before.state == _READY and now.switches == before.switches is not None:
        return True
    if now.ready_s is None or before.ready_s is None:
        return False
    return now.ready_s - before.ready_s > limit_s


def _others() -> dict[int, ThreadFacts]:
    """The threads of the process but the agent's."""
    own = {
        number_of(t)
        for t in threading.enumerate()
        if thread_name(t).startswith(AGENT_THREAD_PREFIX)
    }
    facts = process.threads(os.getpid())
    return {number: fact for number, fact in facts.items() if number not in own}
