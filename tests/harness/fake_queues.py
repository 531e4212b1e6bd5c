"""The queues, events and graphs of a `FakeCuda`, as torch has them; see `fake_torch`.

Each class is made anew for a fake, which it then has as its `cuda`.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from typing_extensions import Self

from tests.harness.fake_cuda import Capture, FakeCuda, FakeError, Owner, Timeline


def queue_of(cuda: FakeCuda, device: Any) -> Timeline:
    """This thread's queue of a device, by whatever names that."""
    if device is None:
        return cuda.current()
    return cuda.current(device if isinstance(device, int) else torch.device(device).index)


def classes_of(cuda: FakeCuda) -> dict[str, Any]:
    """What a fake's classes are, by their names in torch."""
    kinds = {"Stream": _Stream, "Event": _Event, "device": _Device}
    kinds[f"{cuda.kind.upper()}Graph"] = _Graph
    return {n: type(n, (kind,), {**vars(kind), "cuda": cuda}) for n, kind in kinds.items()}


class _Stream:
    """``torch.cuda.Stream``: one queue; as a context manager it is this thread's."""

    cuda: FakeCuda

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        where = device
        if not isinstance(where, Timeline):
            device = queue_of(self.cuda, where).device
            number = 1 + max((n for d, n in self.cuda.timelines if d == device), default=0)
            where = self.cuda.timeline(device, number)
        self.timeline = where
        self.device_index = where.device
        setattr(self, "sycl_queue" if self.cuda.kind == "xpu" else "cuda_stream", where.number)
        self.device = torch.device(self.cuda.kind, where.device)

    def query(self) -> bool:
        self.cuda.note("event_query", self.device_index)
        return self.timeline.is_idle()

    def synchronize(self) -> None:
        self.cuda.note("synchronize", self.device_index)
        self.cuda.finish()

    def wait_stream(self, stream: _Stream) -> None:
        self.cuda.note("event_wait", self.device_index)

    def wait_event(self, event: _Event) -> None:
        self.cuda.note("event_wait", self.device_index)

    def record_event(self, event: Any = None) -> Any:
        event = torch.cuda.Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Self:
        queues = self.cuda.thread.__dict__.setdefault("queues", {})
        self._before = queues.get(self.device_index), self.cuda.device_here()
        queues[self.device_index] = self.timeline
        self.cuda.thread.device = self.device_index
        return self

    def __exit__(self, *_: object) -> None:
        self.cuda.thread.queues[self.device_index], self.cuda.thread.device = self._before


class _Device:
    """``torch.cuda.device``: to enter makes a context there, to leave makes none."""

    cuda: FakeCuda

    def __init__(self, device: Any) -> None:
        self.idx = device if isinstance(device, int) else torch.device(device).index

    def __enter__(self) -> None:
        self._before = self.cuda.device_here()
        self.cuda.contexts.add(self.idx)
        self.cuda.thread.device = self.idx

    def __exit__(self, *_: object) -> None:
        self.cuda.thread.device = self._before


class _Event:
    """``torch.cuda.Event``: made on the device where it is first recorded."""

    cuda: FakeCuda

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._is_timed = enable_timing
        self._device: int | None = None
        self._at: float | None = None
        self._times = 0
        self._is_captured = False
        self._owner: Owner | None = None

    def record(self, stream: Any = None) -> None:
        timeline = self.cuda.current() if stream is None else stream.timeline
        if self._device is None:
            self.cuda.note("event_create", timeline.device)
            self.cuda.contexts.add(timeline.device)
            self._device, self._owner = timeline.device, Owner()
        if self._device != timeline.device:
            raise FakeError(
                f"Event device {self._device} does not match recording stream's device"
                f" {timeline.device}."
            )
        self.cuda.note("event_record", timeline.device)
        capture = self.cuda.capture
        self._is_captured = capture is not None and capture.timeline is timeline
        self._at, self._times = None, self._times + 1
        mine = self._times

        def reached(now: float) -> None:
            if self._times == mine:
                self._at = now

        timeline.push(0.0, reached)

    def query(self) -> bool:
        if self._device is None:
            return True
        self.cuda.note("event_query", self._device)
        if self._is_captured:
            raise FakeError("CUDA error: event was last recorded in a capturing stream")
        return self._at is not None

    def elapsed_time(self, end: _Event) -> float:
        if not (self._is_timed and end._is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.query() and end.query()):
            raise FakeError("Both events must be completed before calculating elapsed time.")
        if self._device != end._device:
            raise FakeError("CUDA error: invalid resource handle")
        self.cuda.note("elapsed_time", self._device)
        assert self._at is not None
        assert end._at is not None
        return (end._at - self._at) * 1e3

    def synchronize(self) -> None:
        self.cuda.note("synchronize", self._device)
        self.cuda.finish()

    def wait(self, stream: Any = None) -> None:
        self.cuda.note("event_wait", self._device)


class _Graph:
    """``torch.cuda.CUDAGraph``: work that was captured, to be done again."""

    cuda: FakeCuda

    def __init__(self, keep_graph: bool = False) -> None:
        self.work: list[float] = []
        self._device = 0

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        if self.cuda.capture is not None:
            raise FakeError("a capture is under way")
        timeline = self.cuda.current()
        if timeline.number == 0:
            raise FakeError("CUDA error: operation not permitted on the default stream")
        self._device, self.cuda.is_broken = timeline.device, False
        self.cuda.capture = Capture(self, timeline, threading.get_ident(), capture_error_mode)

    def capture_end(self) -> None:
        self.cuda.capture, was_broken = None, self.cuda.is_broken
        self.cuda.is_broken = False
        if was_broken:
            raise FakeError("CUDA error: operation failed due to a previous error during capture")

    def replay(self) -> None:
        self.cuda.note("replay", self._device)
        for seconds in self.work:
            self.cuda.current(self._device).push(seconds)

    def reset(self) -> None:
        self.work = []

    def pool(self) -> tuple[int, int]:
        return 0, 1
