"""Made-up accelerators, for tests on machines that have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from probing.agent.sources.accelerator import (
    Accelerator,
    DeviceMemory,
    DeviceModel,
    DeviceSample,
    DeviceTotals,
    OutOfMemory,
    PendingNumber,
    PendingNumbers,
    PinnedMemory,
)
from probing.agent.sources.accelerator.checking import DeviceCheck


class NoAccelerator(Accelerator):
    """One that is not in use."""

    missed = 0

    def __init__(self) -> None:
        """Nothing of torch is asked."""

    def allocated_bytes(self) -> int | None:
        """Nothing."""
        return None

    def copy_number(self, tensor: Any) -> PendingNumber | None:
        """Nothing can be copied."""
        return None

    def copy_numbers(self, tensor: Any) -> PendingNumbers | None:
        """Nor several."""
        return None

    def meet(self, device: Any) -> None:
        """It is none of ours."""

    def mark(self, device: Any = None) -> Any | None:
        """There is no device whose work could be marked."""
        return None

    def between(self, first: Any, last: Any) -> PendingNumber | None:
        """So nothing lies between marks."""
        raise AssertionError((first, last))

    def device_model(self) -> DeviceModel | None:
        """No device."""
        return None

    def memory_figures(self) -> DeviceMemory | None:
        """No allocator."""
        return None

    def device_totals(self, *, fresh: bool = False) -> DeviceTotals | None:
        """No device."""
        return None

    def device_sample(self) -> DeviceSample | None:
        """Nothing to be seen of it."""
        return None

    def notes(self) -> list[str]:
        """Nobody misses it."""
        return []

    def segments(self) -> list[dict[str, Any]] | None:
        """Nothing is reserved."""
        return None

    def pinned_memory(self) -> PinnedMemory | None:
        """Nor is anything pinned."""
        return None

    def check_devices(self) -> list[DeviceCheck]:
        """There is none to be checked."""
        return []

    def generator_states(self) -> list[Any] | None:
        """No generator."""
        return None

    def watch_out_of_memory(self, told: OutOfMemory) -> bool:
        """No allocator can tell."""
        return False

    def allocator_bytes(self, index: int) -> tuple[int | None, int | None]:
        """Nobody asks."""
        raise AssertionError(index)

    def empty_cache(self) -> bool:
        """There is none."""
        return False

    def reset_peaks(self) -> bool:
        """Nothing has peaks."""
        return False

    def use_device(self) -> None:
        """There is none to be used."""

    def remains(self) -> list[str]:
        """Nothing was made."""
        return []


class RecordedMemory(NoAccelerator):
    """One that comes into use when it has figures, and replays them, one per question.

    Attributes:
        asked: How often the whole device was asked for anew.
        cleaned: What it was told to do, in order.
    """

    def __init__(self, figures: Iterable[DeviceMemory | None], totals: DeviceTotals | None) -> None:
        self._figures = iter(figures)
        self._totals = totals
        self.asked = 0
        self.cleaned: list[str] = []

    def memory_figures(self) -> DeviceMemory | None:
        """The next figures."""
        return next(self._figures)

    def device_totals(self, *, fresh: bool = False) -> DeviceTotals | None:
        """The same every time."""
        self.asked += fresh
        return self._totals

    def empty_cache(self) -> bool:
        """Noted."""
        self.cleaned.append("empty_cache")
        return True

    def reset_peaks(self) -> bool:
        """Noted."""
        self.cleaned.append("reset_peaks")
        return True
