"""Times module calls on the accelerator, in some steps.

Rules of this file: used by the training threads; nothing waits for the device. Between two marks in
the device's queue lies what a call has queued; how far they are apart is read once the device has
come past all of its step, at the end of a later step. In all other steps this costs a
comparison with None at each call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ....ring.format import DONE
from ....ring.writer import RingWriter
from ....rundir.folders import ProcessFolder
from ....safety.guard import Guard
from ....tables import DEVICE_TIMES
from ..accelerator import Accelerator, PendingNumber
from ..shared.interval import Interval
from ..shared.recording import Recording
from ..shared.thread_state import MAX_DEPTH
from ..stand_in import PlainSource
from .names.module_names import IDS

FORWARD, BACKWARD, REPLAY = range(3)
_PART_OF_BUDGET = 0.1
_ROWS = 16_384
_MOST_CALLS = 4096
"""Calls of one step that are timed; each holds two marks until the device has come past them."""
_MOST_STEPS = 4

SetTimer = Callable[["DeviceTimes | None"], None]


class _Begun(NamedTuple):
    """A call that has begun."""

    ids: bytes
    stage: int
    depth: int
    thread_id: int
    start_ns: int
    mark: Any


class _Call(NamedTuple):
    """A call whose work has been queued."""

    begun: _Begun
    seconds: PendingNumber


class _Step(NamedTuple):
    """The calls of a step."""

    number: int
    calls: list[_Call]


class DeviceTimes(PlainSource):
    """The source `device times`.

    Attributes:
        timed_by: Called with this source when a step is to be timed, and with None at its end.
    """

    def __init__(
        self,
        recording: Recording,
        folder: ProcessFolder,
        accelerator: Accelerator,
        share: float,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Begin without recording.

        Args:
            share: The part of a step that all recording may cost.
        """
        self._recording = recording
        self._folder = folder
        self._accelerator = accelerator
        self._clock = clock
        self._interval = Interval(share * _PART_OF_BUDGET)
        self._ring: RingWriter | None = None
        self._begun: dict[object, _Begun] = {}
        self._step = _Step(0, [])
        self._waiting: deque[_Step] = deque()
        self._is_timing = False
        self._cost_ns = 0
        self.timed_by: tuple[SetTimer, ...] = ()
        self.is_on = False
        self.guard = Guard("device times", self.stop)

    def start(self) -> None:
        """Time some of the steps from now on."""
        self.is_on = True

    def stop(self) -> None:
        """Time no more."""
        self.is_on = False
        self._set(None)
        self._waiting.clear()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def note(self) -> str | None:
        """What `status` says of it beside its state."""
        return "no accelerator is in use" if self._ring is None else None

    def step_began(self, number: int) -> None:
        """A step begins."""
        if self.is_on and self._interval.is_common(number):
            self.guard.run(self._begin, number)

    def step_ended(self, took_ns: int) -> None:
        """The step has ended."""
        if self._is_timing:
            self._set(None)
            self._interval.taken(self._cost_ns, took_ns)
            if self._step.calls and len(self._waiting) < _MOST_STEPS:
                self._waiting.append(self._step)
        if self._waiting:
            self.guard.run(self._write)

    def entered(self, key: object, ids: bytes, stage: int, depth: int) -> None:
        """A module call, or its backward pass, is about to queue its work.

        Args:
            key: By which its end is known, whichever thread sees it: on a device, autograd begins
                a pass in a thread of its own, and the thread that called for it ends it.
        """
        start = self._clock()
        try:
            thread = self._recording.threads.state
            if thread.recomputing or thread.is_apart or len(self._step.calls) >= _MOST_CALLS:
                return
            if stage == FORWARD and depth == 1:
                self._recording.rows.see_autocast()
            mark = self._accelerator.mark()
            if mark is not None:
                begun = _Begun(ids, stage, min(depth, MAX_DEPTH), thread.native_id, start, mark)
                self._begun[key] = begun
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
        self._cost_ns += self._clock() - start

    def left(self, key: object) -> None:
        """It has queued all of it."""
        start = self._clock()
        try:
            begun = self._begun.pop(key, None)
            if begun is not None and (end := self._accelerator.mark()) is not None:
                seconds = self._accelerator.between(begun.mark, end)
                if seconds is not None:
                    self._step.calls.append(_Call(begun, seconds))
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
        self._cost_ns += self._clock() - start

    def _begin(self, number: int) -> None:
        """Time this step, if there is a device whose work can be marked."""
        if self._accelerator.mark() is None:
            return
        if self._ring is None:
            self._ring = RingWriter(self._folder.ring(DEVICE_TIMES.name), DEVICE_TIMES, _ROWS)
        self._step, self._cost_ns = _Step(number, []), 0
        self._set(self)

    def _set(self, timer: DeviceTimes | None) -> None:
        """Have the calls of modules timed, or no more."""
        self._is_timing = timer is not None
        self._begun.clear()
        for set_timer in self.timed_by:
            set_timer(timer)

    def _write(self) -> None:
        """Write the rows of the steps that the device has done with."""
        while self._waiting and self._ring is not None:
            number, calls = self._waiting[0]
            # Calls may lie in several queues of the device, and the last is not the last in all.
            if not all(call.seconds.is_here() for call in reversed(calls)):
                return
            self._waiting.popleft()
            for begun, seconds in calls:
                module, kind, root = IDS.unpack(begun.ids)
                word = self._ring.open_row(
                    begun.start_ns, number, module, kind, root, begun.thread_id, begun.stage,
                    begun.depth,
                )  # fmt: skip
                self._ring.close_row(word, DONE, seconds.value())
