"""Records replays of CUDA graphs, and has it known when one is captured.

Rules of this file: stands in for three methods of torch's ``CUDAGraph``; runs in the threads that
call them. A graph is not kept alive. What a replay computes is called by nobody: no module, no
backward pass and no optimizer is seen in it. So one in which an optimizer has stepped as it was
captured ends a step of training each time that it is replayed.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ....ring.format import DONE, FAILED, NULL_INT
from ....tables import STAGES
from ..accelerator import captures, graph_class
from ..memory.sampler import MemorySampler
from ..shared.recording import Recording
from ..shared.thread_state import MAX_DEPTH
from ..stand_in import StandIn, StandInSource
from ..steps.boundary import Boundary
from ..steps.progress import Progress
from ..torch_types import CUDAGraph, Optimizer
from .device_times import REPLAY as DEVICE_REPLAY, DeviceTimes
from .names.module_names import IDS

REPLAY = STAGES.index("replay")
_CLASS = "CUDAGraph"


class _Graph(NamedTuple):
    """A graph that was captured.

    Attributes:
        ids: The numbers of its name and class, packed.
        optimizers: Those that have stepped as it was captured.
    """

    ids: bytes
    optimizers: tuple[weakref.ref[Any], ...]


class GraphReplays(StandInSource):
    """The source `graphs`."""

    def __init__(
        self, recording: Recording, progress: Progress, memory: MemorySampler, boundary: Boundary
    ) -> None:
        self._recording = recording
        self._progress = progress
        self._memory = memory
        self._boundary = boundary
        self._graphs: weakref.WeakKeyDictionary[Any, _Graph] = weakref.WeakKeyDictionary()
        self._stepped: list[weakref.ref[Any]] = []
        self._number = 0
        self._timer: DeviceTimes | None = None
        cls = graph_class()
        begins: list[Callable[..., object]]
        begins = [captures.begins, captures.ended, self._hear_steps, recording.events.forget]
        methods = (
            []
            if cls is None
            else [
                StandIn(cls, "capture_begin", self._around_begin, begins),
                StandIn(cls, "capture_end", self._around_end, [captures.ended, self._captured]),
                StandIn(cls, "replay", self._around_replay, [self._begin, self._end]),
            ]
        )
        super().__init__("graphs", methods, recording.events)

    def time_by(self, timer: DeviceTimes | None) -> None:
        """Have replays timed on the device from now on, or no more."""
        self._timer = timer

    def _optimizer_stepped(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer has stepped, perhaps in a capture."""
        if captures.UNDER_WAY:
            self._stepped.append(weakref.ref(optimizer))

    def _around_begin(
        self, original: Callable[..., object], /, *args: Any, **kwargs: object
    ) -> Any:
        """A capture begins: from before that on, nothing of ours asks the device anything."""
        captures.begins(args[0])
        self._stepped.clear()
        self._hear_steps(after=self._optimizer_stepped)
        try:
            return original(*args, **kwargs)
        except BaseException:
            captures.ended(args[0])
            raise

    def _around_end(self, original: Callable[..., object], /, *args: Any, **kwargs: object) -> Any:
        """A capture ends."""
        try:
            result = original(*args, **kwargs)
        finally:
            captures.ended(args[0])
        self.guard.run(self._captured, args[0])
        return result

    def _captured(self, graph: CUDAGraph) -> None:
        """Give the graph its name."""
        intern = self._recording.names.intern
        self._number += 1
        cls = intern(_CLASS)
        ids = IDS.pack(intern(f"{_CLASS} {self._number}"), cls, cls)
        self._graphs[graph] = _Graph(ids, tuple(self._stepped))
        self._stepped.clear()

    def _around_replay(
        self, original: Callable[..., object], /, *args: Any, **kwargs: object
    ) -> Any:
        """A graph is replayed: the call only queues it."""
        try:
            begun = self._begin(args[0])
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
            begun = None
        if begun is None:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            self.guard.run(self._close, *begun, FAILED)
            raise
        self.guard.run(self._end, args[0], *begun)
        return result

    def _begin(self, graph: CUDAGraph) -> tuple[int, int] | None:
        """Open the row of a replay; returns its word and when it began, None for none."""
        recording = self._recording
        thread = recording.threads.state
        if thread.is_agents or recording.awaits_step or not self._boundary.is_on:
            return None
        if graph not in self._graphs:  # captured before recording began
            self._captured(graph)
        ids, start = self._graphs[graph].ids, time.perf_counter_ns()
        depth = min(thread.depth, MAX_DEPTH)
        word = recording.trace.open_row(
            start, recording.step, *IDS.unpack(ids), thread.native_id, REPLAY, depth, 0, 1
        )
        if self._timer is not None:
            self._timer.entered(word, ids, DEVICE_REPLAY, depth)
        return word, start

    def _close(self, word: int, start_ns: int, state: int) -> None:
        """Complete it."""
        if self._timer is not None:
            self._timer.left(word)
        took, held = time.perf_counter_ns() - start_ns, self._memory.bytes
        self._recording.trace.close_row(word, state, took, held if state == DONE else NULL_INT)

    def _end(self, graph: CUDAGraph, word: int, start_ns: int) -> None:
        """It is queued; and with it perhaps a step."""
        self._close(word, start_ns, DONE)
        recording, thread = self._recording, self._recording.threads.state
        known = self._graphs.get(graph)
        for optimizer in [reference() for reference in known.optimizers] if known else ():
            if optimizer is None or not self._boundary.admit_step(thread):
                continue
            name = recording.names.intern(type(optimizer).__name__)
            recording.objects.optimizers.add(optimizer)
            if self._progress.optimizer_stepped(optimizer, name, thread):
                recording.safe_points.step_ended()
