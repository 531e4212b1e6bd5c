"""The seam for accelerators: all that the agent asks of one.

Rules of this file: runs in the training threads; asks only when torch has already initialised the
accelerator, and never waits for it. Tests put a recorded accelerator in its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from .memory.nvml import DeviceTotals, Nvml, uuids_of

OutOfMemory = Callable[[int, int, int, int], None]

_MOST_MARKS = 8192


class PendingNumber(Protocol):
    """A number on its way from the device."""

    def is_here(self) -> bool:
        """Whether it has arrived; asks without waiting."""

    def value(self) -> float:
        """The number, once it is here."""


class PendingNumbers(Protocol):
    """Several numbers on their way from the device."""

    def is_here(self) -> bool:
        """Whether they have arrived; asks without waiting."""

    def values(self) -> list[float]:
        """The numbers, once they are here."""


class DeviceMemory(NamedTuple):
    """What the allocator of a device tells of itself."""

    device: str
    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int


class Accelerator(Protocol):
    """What the agent asks of an accelerator."""

    def allocated_bytes(self) -> int | None:
        """Bytes handed out by its allocator on the current device; None when it is not in use."""

    def copy_number(self, tensor: Any) -> PendingNumber | None:
        """Have a tensor of one element brought to the host; None when that cannot be done now."""

    def copy_numbers(self, tensor: Any) -> PendingNumbers | None:
        """The same for a tensor of one dimension."""

    def mark(self) -> Any | None:
        """Mark a moment in the work of the current device; None when it is not in use."""

    def between(self, first: Any, last: Any) -> PendingNumber:
        """The seconds that the device took from one mark to another."""

    def give_back(self, marks: Iterable[Any]) -> None:
        """Marks are not needed any more: others may be made of them."""

    def watch_out_of_memory(self, told: OutOfMemory) -> bool:
        """Have a function called when memory runs out; False while the device is not in use.

        Args:
            told: Gets the device's number, the bytes asked for, those there are, and those free.
        """

    def allocator_bytes(self, index: int) -> tuple[int | None, int | None]:
        """What a device's allocator has handed out, and taken from the device; without waiting."""

    def device_name(self) -> str | None:
        """What the current device is called; None when it is not in use."""

    def memory_figures(self) -> DeviceMemory | None:
        """The allocator's figures of the current device; None when it is not in use."""

    def device_totals(self) -> DeviceTotals | None:
        """The memory of that whole device, by all programs; None where nothing tells it."""

    def totals_note(self) -> str | None:
        """Why nothing tells it, where it has been asked for and nothing does."""

    def segments(self) -> list[dict[str, Any]] | None:
        """What its allocator has reserved, as torch tells it; None when it is not in use."""

    def empty_cache(self) -> bool:
        """Have its allocator give back what is not in use; False when it is not in use itself.

        Waits for the device: only for who has asked for it.
        """

    def reset_peaks(self) -> bool:
        """Have the current device's peaks begin anew; False when it is not in use."""

    def generator_states(self) -> list[Any] | None:
        """The states of its random number generators; None when it is not in use."""


class Cuda:
    """CUDA by way of torch, without any call that waits for the device."""

    def __init__(self) -> None:
        self._nvml = Nvml()
        self._marks: list[Any] = []
        self._uuids: dict[int, tuple[str, ...]] = {}

    def allocated_bytes(self) -> int | None:
        """See `Accelerator`; needs no driver call, so it is safe during graph capture."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return None
        stats = cuda.memory_stats_as_nested_dict(cuda.current_device())
        allocated: int = stats["allocated_bytes"]["all"]["current"]
        return allocated

    def copy_number(self, tensor: Any) -> PendingNumber | None:
        """See `Accelerator`; queued behind the work that makes the number."""
        torch = sys.modules["torch"]
        if tensor.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        return _CudaNumber(*_on_its_way(torch, tensor.detach().reshape(())))

    def copy_numbers(self, tensor: Any) -> PendingNumbers | None:
        """See `Accelerator`; as `copy_number`."""
        torch = sys.modules["torch"]
        if tensor.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        return _CudaNumber(*_on_its_way(torch, tensor.detach()))

    def mark(self) -> Any | None:
        """See `Accelerator`."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized() or cuda.is_current_stream_capturing():
            return None
        try:
            event = self._marks.pop()
        except IndexError:
            event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, last: Any) -> PendingNumber:
        """See `Accelerator`."""
        return _CudaSeconds(first, last)

    def give_back(self, marks: Iterable[Any]) -> None:
        """See `Accelerator`; to make an event is several times as dear as to record one."""
        self._marks += marks
        del self._marks[_MOST_MARKS:]

    def device_name(self) -> str | None:
        """See `Accelerator`."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return None
        name: str = cuda.get_device_name(cuda.current_device())
        return name

    def memory_figures(self) -> DeviceMemory | None:
        """See `Accelerator`; as `allocated_bytes`."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return None
        ordinal = cuda.current_device()
        stats = cuda.memory_stats_as_nested_dict(ordinal)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return DeviceMemory(
            f"cuda:{ordinal}",
            allocated["current"],
            allocated["peak"],
            reserved["current"],
            reserved["peak"],
        )

    def device_totals(self) -> DeviceTotals | None:
        """See `Accelerator`; by NVML."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return None
        ordinal = cuda.current_device()
        if ordinal not in self._uuids:
            told = getattr(cuda.get_device_properties(ordinal), "uuid", None)
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            uuid = None if told is None else str(told)
            self._uuids[ordinal] = uuids_of(uuid, visible=visible, ordinal=ordinal)
        return self._nvml.totals(self._uuids[ordinal])

    def totals_note(self) -> str | None:
        """See `Accelerator`."""
        return self._nvml.note

    def watch_out_of_memory(self, told: OutOfMemory) -> bool:
        """See `Accelerator`; torch crashes when it is asked before CUDA is in use."""
        torch = sys.modules["torch"]
        if not torch.cuda.is_initialized():
            return False
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None:
            attach(told)
        return True

    def allocator_bytes(self, index: int) -> tuple[int | None, int | None]:
        """See `Accelerator`."""
        stats = sys.modules["torch"].cuda.memory_stats_as_nested_dict(index)
        return tuple(stats[f"{what}_bytes"]["all"]["current"] for what in ("allocated", "reserved"))

    def generator_states(self) -> list[Any] | None:
        """See `Accelerator`."""
        cuda = sys.modules["torch"].cuda
        return list(cuda.get_rng_state_all()) if cuda.is_initialized() else None

    def segments(self) -> list[dict[str, Any]] | None:
        """See `Accelerator`; asks the allocator, not the driver."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return None
        found: list[dict[str, Any]] = cuda.memory_snapshot()
        return found

    def empty_cache(self) -> bool:
        """See `Accelerator`."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return False
        cuda.empty_cache()
        return True

    def reset_peaks(self) -> bool:
        """See `Accelerator`."""
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return False
        cuda.reset_peak_memory_stats()
        return True


def is_in_use() -> bool:
    """Whether the process computes with an accelerator; asking does not begin to use it."""
    in_use: bool = sys.modules["torch"].cuda.is_initialized()
    return in_use


def is_capturing() -> bool:
    """Whether work is being captured for a CUDA graph, where nothing may be added."""
    return is_in_use() and bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def free_bytes(device: Any) -> int | None:
    """What is free on a tensor's device; None for one that is no accelerator."""
    if device.type != "cuda":
        return None
    free: int = sys.modules["torch"].cuda.mem_get_info(device)[0]
    return free


def _on_its_way(torch: Any, tensor: Any) -> tuple[Any, Any]:
    """A copy in pinned memory, and the event after which it is there."""
    with torch.no_grad():
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return host, event


class _CudaSeconds:
    """The time between two events of a stream."""

    def __init__(self, first: Any, last: Any) -> None:
        self._first = first
        self._last = last

    def is_here(self) -> bool:
        """See `PendingNumber`."""
        here: bool = self._last.query()
        return here

    def value(self) -> float:
        """See `PendingNumber`."""
        return float(self._first.elapsed_time(self._last)) * 1e-3


class _CudaNumber:
    """Numbers in pinned memory, and the event that says when they are there."""

    def __init__(self, host: Any, event: Any) -> None:
        self._host = host
        self._event = event

    def is_here(self) -> bool:
        """See `PendingNumber`."""
        here: bool = self._event.query()
        return here

    def value(self) -> float:
        """See `PendingNumber`."""
        return float(self._host.item())

    def values(self) -> list[float]:
        """See `PendingNumbers`."""
        numbers: list[float] = self._host.tolist()
        return numbers


class HistoryKeeper(Protocol):
    """What the agent asks of an allocator that can keep a history of its own."""

    def is_in_use(self) -> bool:
        """Whether the program has initialised the accelerator."""

    def has_history(self) -> bool:
        """Whether a history is kept already."""

    def start_history(self, entries: int) -> None:
        """Keep a history of so many events, with Python stacks."""

    def stop_history(self) -> None:
        """Keep none any more."""

    def history(self) -> dict[str, Any]:
        """What the allocator holds and remembers, as torch's snapshots have it."""


class CudaHistory:
    """The history of torch's allocator for CUDA; its calls wait for no device."""

    def is_in_use(self) -> bool:
        """See `HistoryKeeper`."""
        in_use: bool = sys.modules["torch"].cuda.is_initialized()
        return in_use

    def has_history(self) -> bool:
        """See `HistoryKeeper`; an older torch does not tell, and then it is taken to be off."""
        ask = getattr(sys.modules["torch"]._C, "_cuda_isHistoryEnabled", None)
        return bool(ask and ask())

    def start_history(self, entries: int) -> None:
        """See `HistoryKeeper`; without C++ frames, which cost more than all the rest."""
        memory = sys.modules["torch"].cuda.memory
        memory._record_memory_history("all", stacks="python", max_entries=entries)

    def stop_history(self) -> None:
        """See `HistoryKeeper`."""
        sys.modules["torch"].cuda.memory._record_memory_history(None)

    def history(self) -> dict[str, Any]:
        """See `HistoryKeeper`."""
        snapshot: dict[str, Any] = sys.modules["torch"].cuda.memory._snapshot()
        return snapshot
