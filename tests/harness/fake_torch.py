"""Puts a `FakeCuda` into a torch that was built without CUDA.

Every tensor then lies on the fake's device, but for those that are made for the host by name; they
are computed with on the CPU, at once. What copies a number to the host arrives when its turn comes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from typing_extensions import Self

from tests.harness.fake_cuda import TOTAL, Capture, FakeCuda, FakeError, Owner, Timeline
from tests.harness.fake_tensors import Tensors

FOREVER = math.inf
"""How long a collective takes that another rank does not come to."""
_SMS = 132


@contextmanager
def installed(cuda: FakeCuda) -> Iterator[FakeCuda]:
    """Have it be torch's CUDA for a while."""
    undo: list[Callable[[], None]] = []
    for owner, name, value in (*_replacements(cuda), *Tensors(cuda).replacements()):
        undo.append(_put(owner, name, value))
    try:
        yield cuda
    finally:
        cuda.is_on = False
        while undo:
            undo.pop()()


def install(cuda: FakeCuda) -> FakeCuda:
    """Have it be torch's CUDA as long as the process lives."""
    for owner, name, value in (*_replacements(cuda), *Tensors(cuda).replacements()):
        _put(owner, name, value)
    return cuda


def _put(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Put something in the place of another; returns what puts that back."""
    had, before = name in vars(owner), vars(owner).get(name)

    def undo() -> None:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    setattr(owner, name, value)
    return undo


def _replacements(cuda: FakeCuda) -> Iterator[tuple[Any, str, Any]]:
    """What is put where: the owner, the name, and the value."""
    module: Any = getattr(torch, cuda.kind)
    api, graph = _Api(cuda), f"{cuda.kind.upper()}Graph"
    kinds = {"Stream": _Stream, "Event": _Event, graph: _Graph, "device": _Device}
    made: dict[str, Any] = {
        n: type(n, (kind,), {**vars(kind), "cuda": cuda}) for n, kind in kinds.items()
    }
    for name, value in made.items():
        yield module, name, value
    yield module.graphs, graph, made[graph]
    for name in _PLAIN:
        yield module, name, getattr(api, name)
    yield module, "current_stream", lambda device=None: made["Stream"](_of(cuda, device))
    yield module, "stream", lambda stream: nullcontext() if stream is None else stream
    yield module.memory, "_record_memory_history", api.record_memory_history
    yield module.memory, "_snapshot", api.snapshot
    if cuda.kind == "xpu":
        yield torch._C, "_has_xpu", True
        yield module, "manual_seed_all", lambda seed: None
        return
    yield torch._C, "_cuda_hasPrimaryContext", lambda device: device in cuda.contexts
    yield torch._C, "_cuda_isHistoryEnabled", lambda: cuda.history is not None
    yield torch._C, "_cuda_attach_out_of_memory_observer", api.attach_observer


_PLAIN = (
    "is_initialized",
    "is_available",
    "device_count",
    "current_device",
    "set_device",
    "is_current_stream_capturing",
    "synchronize",
    "memory_stats_as_nested_dict",
    "memory_allocated",
    "memory_snapshot",
    "mem_get_info",
    "empty_cache",
    "reset_peak_memory_stats",
    "get_device_name",
    "get_device_properties",
    "get_device_capability",
    "get_rng_state",
    "get_rng_state_all",
    "set_rng_state",
    "set_sync_debug_mode",
    "memory_reserved",
    "_sleep",
)


def _of(cuda: FakeCuda, device: Any) -> Timeline:
    """This thread's queue of a device, by whatever names that."""
    if device is None:
        return cuda.current()
    return cuda.current(device if isinstance(device, int) else torch.device(device).index)


class _Api:
    """The functions of ``torch.cuda``."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def is_initialized(self) -> bool:
        return self._cuda.is_on and self._cuda.is_mine()

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return self._cuda.devices

    def current_device(self) -> int:
        self._cuda.check_process("current_device")
        return self._cuda.device_here()

    def set_device(self, device: Any) -> None:
        index = device if isinstance(device, int) else torch.device(device).index
        self._cuda.note("set_device", index)
        self._cuda.contexts.add(index)
        self._cuda.thread.device = index

    def is_current_stream_capturing(self) -> bool:
        capture = self._cuda.capture
        return capture is not None and self._cuda.current() is capture.timeline

    def synchronize(self, device: Any = None) -> None:
        self._cuda.note("synchronize", self._cuda.device_here())
        self._cuda.finish()

    def memory_stats_as_nested_dict(self, device: Any = None) -> dict[str, Any]:
        if self._cuda.allocator == "pluggable":
            raise FakeError("CUDAPluggableAllocator does not yet support getDeviceStats.")
        index = self._cuda.device_here() if device is None else device
        here = index == self._cuda.home
        figures = {"allocated": self._cuda.allocated, "reserved": self._cuda.reserved}
        return {
            f"{what}_bytes": {"all": {"current": n if here else 0, "peak": 2 * n if here else 0}}
            for what, n in figures.items()
        }

    def memory_reserved(self, device: Any = None) -> int:
        found: int = self.memory_stats_as_nested_dict(device)["reserved_bytes"]["all"]["current"]
        return found

    def set_sync_debug_mode(self, mode: Any) -> None:
        self._cuda.refuses_waits = mode == "error"

    def memory_allocated(self, device: Any = None) -> int:
        found: int = self.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]
        return found

    def memory_snapshot(
        self, mempool_id: Any = None, include_traces: bool = True
    ) -> list[dict[str, Any]]:
        self._refuse_history("snapshot")
        self._cuda.note("snapshot_with_traces" if include_traces else "snapshot")
        return []

    def snapshot(self) -> dict[str, Any]:
        self._refuse_history("snapshot")
        return {"segments": [], "device_traces": [[] for _ in range(self._cuda.devices)]}

    def record_memory_history(self, enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
        self._refuse_history("recordHistory")
        self._cuda.history = None if enabled is None else kwargs.get("max_entries", 1)

    def attach_observer(self, told: Any) -> None:
        self._cuda.note("attach_observer")
        self._refuse_history("attachOutOfMemoryObserver")
        self._cuda.observers.append(told)

    def _refuse_history(self, what: str) -> None:
        if self._cuda.allocator != "native":
            raise FakeError(f"{self._cuda.allocator} does not yet support {what}.")

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        index = _of(self._cuda, device).device
        self._cuda.note("mem_get_info", index)
        self._cuda.contexts.add(index)
        return TOTAL - self._cuda.reserved, TOTAL

    def empty_cache(self) -> None:
        self._cuda.note("empty_cache")

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self._cuda.note("reset_peaks", device)

    def get_device_name(self, device: Any = None) -> str:
        return f"NVIDIA H200 (fake {self._cuda.device_here() if device is None else device})"

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return 9, 0

    def get_device_properties(self, device: Any = None) -> Any:
        index = self._cuda.device_here() if device is None else device
        return SimpleNamespace(
            uuid=f"fake-{index}",
            multi_processor_count=_SMS,
            name=self.get_device_name(index),
            total_memory=TOTAL,
        )

    def get_rng_state(self, device: Any = None) -> Any:
        return None

    def set_rng_state(self, state: Any, device: Any = None) -> None:
        assert state is None

    def get_rng_state_all(self) -> list[Any]:
        return []

    def _sleep(self, cycles: int) -> None:
        self._cuda.work(cycles * 1e-9, self._cuda.device_here())


class _Stream:
    """``torch.cuda.Stream``: one queue; as a context manager it is this thread's."""

    cuda: FakeCuda

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        where = device
        if not isinstance(where, Timeline):
            device = _of(self.cuda, where).device
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
