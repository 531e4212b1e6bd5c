"""What an accelerator answers; `Accelerator` says what it is asked.

Rules of this file: no torch; see the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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
