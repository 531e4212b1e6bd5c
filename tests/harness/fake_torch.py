"""Puts a `FakeCuda` into a torch that was built without CUDA.

Every tensor then lies on the fake's device, but for those that are made for the host by name; they
are computed with on the CPU, at once. What copies a number to the host arrives when its turn comes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from tests.harness.fake_cuda import TOTAL, FakeCuda, FakeError
from tests.harness.fake_queues import classes_of, queue_of
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
    api, made = _Api(cuda), classes_of(cuda)
    graph = f"{cuda.kind.upper()}Graph"
    for name, value in made.items():
        yield module, name, value
    yield module.graphs, graph, made[graph]
    for name in _PLAIN:
        function = getattr(api, name)
        yield module, name, _beginning(cuda, function) if name in _BEGINS else function
    yield torch.backends.cudnn, "version", _beginning(cuda, lambda: 91_900)
    yield module, "current_stream", lambda device=None: made["Stream"](queue_of(cuda, device))
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


def _beginning(cuda: FakeCuda, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch begins to use its devices for, after which no forked child may."""

    def call(*args: Any, **kwargs: Any) -> Any:
        cuda.is_on = True
        return function(*args, **kwargs)

    return call


_BEGINS = frozenset(
    {
        "current_device",
        "get_device_capability",
        "get_device_name",
        "get_device_properties",
        "get_rng_state",
        "mem_get_info",
        "set_rng_state",
        "synchronize",
    }
)
_PLAIN = (
    "is_initialized",
    "is_available",
    "device_count",
    "current_device",
    "set_device",
    "is_current_stream_capturing",
    "synchronize",
    "memory_stats_as_nested_dict",
    "host_memory_stats_as_nested_dict",
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
        return self._cuda.segments()

    def host_memory_stats_as_nested_dict(self) -> dict[str, Any]:
        if not self.is_initialized():
            return {}
        told = self._cuda.pinned
        return {
            "allocations": {"current": told["all_pieces"], "peak": told["all_pieces"]},
            "allocated_bytes": {"current": told["all_bytes"], "peak": told["all_bytes"]},
            "active_requests": {"current": told["pieces"], "peak": told["all_pieces"]},
            "active_bytes": {"current": told["bytes"], "peak": told["all_bytes"]},
        }

    def snapshot(self) -> dict[str, Any]:
        self._refuse_history("snapshot")
        return {
            "segments": self._cuda.segments(),
            "device_traces": [[] for _ in range(self._cuda.devices)],
        }

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
        index = queue_of(self._cuda, device).device
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
        return array("B", [self._cuda.device_here() if device is None else int(device)])

    def set_rng_state(self, state: Any, device: Any = None) -> None:
        assert state == self.get_rng_state(device)

    def get_rng_state_all(self) -> list[Any]:
        return []

    def _sleep(self, cycles: int) -> None:
        self._cuda.work(cycles * 1e-9, self._cuda.device_here())
