"""What the agent asks of an accelerator.

Rules of this file: no torch; see the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..torch_types import Device, Tensor
from .nvml import DeviceSample, DeviceTotals

OutOfMemory = Callable[[int, int, int, int], None]


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


class Mark(Protocol):
    """A moment in the work of a device; who lets go of it gives it back.

    Attributes:
        lane: The queue that it lies in: where one mark has not been reached, none behind it has.
    """

    @property
    def lane(self) -> Any:
        """See above."""

    def is_here(self) -> bool:
        """Whether the device has come to it; asks without waiting."""


class DeviceMemory(NamedTuple):
    """What the allocator of a device tells of itself."""

    device: str
    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int


class PinnedMemory(NamedTuple):
    """What torch has pinned of the host's memory, so that devices can read and write it.

    Attributes:
        used_bytes: What of it somebody has now, or the device may still be using; None where torch
            does not count that rightly.
        pieces: How many pieces it is in; None where that is not told.
    """

    bytes: int
    used_bytes: int | None
    pieces: int | None


class DeviceModel(NamedTuple):
    """What a device is.

    Attributes:
        processors: How many multiprocessors it has; None where that is not told.
    """

    name: str
    processors: int | None = None


class Accelerator(Protocol):
    """What the agent asks of an accelerator.

    Of several devices in a process that of the training is meant: see `meet`.
    """

    def meet(self, device: Device) -> None:
        """The training's tensors lie on this device; its own, where that is no accelerator."""

    def allocated_bytes(self) -> int | None:
        """Bytes handed out by its allocator; None when it is not in use, or does not tell."""

    def copy_number(self, tensor: Tensor) -> PendingNumber | None:
        """Have a tensor of one element brought to the host; None when that cannot be done now."""

    def copy_numbers(self, tensor: Tensor) -> PendingNumbers | None:
        """The same for a tensor of one dimension."""

    def mark(self, device: Device | None = None) -> Any | None:
        """Mark a moment in this thread's queue of a device; None when that cannot be done now.

        Args:
            device: That of some tensor; None for the training's.
        """

    def between(self, first: object, last: object) -> PendingNumber | None:
        """The seconds that the device took from one mark to another; None for two devices."""

    def watch_out_of_memory(self, told: OutOfMemory) -> bool:
        """Have a function called when memory runs out; False while the device is not in use.

        Args:
            told: Gets the device's number, the bytes asked for, those there are, and those free.
        """

    def allocator_bytes(self, index: int) -> tuple[int | None, int | None]:
        """What a device's allocator has handed out, and taken from the device; without waiting."""

    def device_model(self) -> DeviceModel | None:
        """What the device is; None when it is not in use."""

    def memory_figures(self) -> DeviceMemory | None:
        """The allocator's figures; None when it is not in use, or does not tell."""

    def device_totals(self, *, fresh: bool = False) -> DeviceTotals | None:
        """The memory of that whole device, by all programs; None where nothing tells it.

        Args:
            fresh: Whether to ask now, which may take a while: else it is as old as the last sample.
        """

    def device_sample(self) -> DeviceSample | None:
        """What that device does now; may take a while, so not for the training's threads."""

    def notes(self) -> list[str]:
        """What cannot be told here, and why, one sentence each."""

    def segments(self) -> list[dict[str, Any]] | None:
        """What its allocator has reserved, as torch tells it; None when nothing tells it."""

    def pinned_memory(self) -> PinnedMemory | None:
        """What torch has pinned; None while no device is in use, or where nothing tells it."""

    def check_devices(self) -> Sequence[tuple[str, bool | None, float | None, str | None]]:
        """Have the devices in use compute something: name, whether right, seconds, and why not.

        Takes a while, so not for the training's threads; none while no device is in use.
        """

    def empty_cache(self) -> bool:
        """Have its allocator give back what is not in use; False when it is not in use itself.

        Waits for the device: only for who has asked for it.
        """

    def reset_peaks(self) -> bool:
        """Have the device's peaks begin anew; False when it is not in use."""

    def generator_states(self) -> list[Any] | None:
        """The states of its random number generators; None when it is not in use."""

    def use_device(self) -> None:
        """Have this thread use the training's device: each thread has one of its own."""

    def remains(self) -> list[str]:
        """What stays when the agent leaves, one sentence each."""
