"""Accelerators by way of torch: CUDA, which is ROCm as well in a torch built for that, and XPU.

Rules of this file: see the package. What torch refuses is noted, once, and is None from then on.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from ....safety.guard import pass_on
from ..torch_types import Device, Tensor
from .api import device_api, device_kind, is_in_use, maker
from .captures import is_capturing
from .checking import DeviceCheck, check_devices
from .marks import Marks, Seconds
from .nvml import DeviceSample, DeviceTotals, Nvml, not_of, uuids_of
from .owned import Owned, pool_of
from .pinned import Pinned, pinned_by_torch
from .seam import (
    DeviceMemory,
    DeviceModel,
    OutOfMemory,
    PendingNumber,
    PendingNumbers,
    PinnedMemory,
)

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Method = Callable[Concatenate["Accelerator", _Given], _Result]


def device_names() -> str | None:
    """The models of the devices that hold memory of the process; None where none does.

    A thread's current device need not be the training's: no such device is asked.
    """
    cuda = device_api()
    if not cuda.is_initialized():
        return None
    devices = range(cuda.device_count())
    try:
        used = [index for index in devices if cuda.memory_reserved(index)]
    except RuntimeError:  # an allocator without figures
        pass_on()
        used = list(devices)
    return ", ".join(dict.fromkeys(str(cuda.get_device_name(index)) for index in used)) or None


def random_state() -> bytes | None:
    """The states of the random generators of all devices, one behind the other; None without any.

    To read them waits for no work of a device: they lie in main memory. The current device of a
    thread need not be that which the model is on.
    """
    cuda = device_api()
    if not cuda.is_initialized() or is_capturing():
        return None
    states = (cuda.get_rng_state(number) for number in range(cuda.device_count()))
    return b"".join(bytes(state.tolist()) for state in states)


def free_bytes(device: Device) -> int | None:
    """What is free on a tensor's device; None for one that is no accelerator."""
    if device.type != device_kind() or is_capturing():
        return None
    free: int = device_api().mem_get_info(device)[0]
    return free


def _noted(
    what: str, otherwise: Any = None
) -> Callable[[_Method[_Given, _Result]], _Method[_Given, _Result]]:
    """Have what torch refuses be a note, and come to something else.

    Args:
        what: What cannot be told then.
        otherwise: What the function gives in its place.
    """

    def wrap(function: _Method[_Given, _Result]) -> _Method[_Given, _Result]:
        @functools.wraps(function)
        def call(self: Accelerator, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
            try:
                return function(self, *args, **kwargs)
            except RuntimeError as error:  # what torch and CUDA raise, by whatever name
                pass_on()
                self._refused(what, error)
                return otherwise  # type: ignore[no-any-return]

        return call

    return wrap


class Accelerator:
    """What the agent asks of an accelerator.

    Of several devices in a process that of the training is meant: see `meet`.

    Attributes:
        missed: How many numbers were not brought, for too many were on their way.
    """

    missed = 0

    def __init__(self) -> None:
        self._nvml = Nvml()
        self._api = device_api()
        self._events = self._api.Event  # a process has one kind; tests have one each
        self._owned = pool_of(("owned", self._events), Owned)
        self._marks = Marks(self._owned, self._events)
        self._pinned: dict[int, Pinned] = {}
        self._contexts: set[int] = set()
        self._models: dict[int, DeviceModel] = {}
        self._device: int | None = None
        self._totals: DeviceTotals | None = None
        self._uuids: dict[int, tuple[str, ...]] = {}
        self._refusals: dict[str, str] = {}

    def meet(self, device: Device) -> None:
        """The training's tensors lie on this device; its own, where that is no accelerator."""
        self._device = device.index if device.type == device_kind() else self._device

    def _refused(self, what: str, error: RuntimeError) -> None:
        """Note why something cannot be told."""
        self._refusals.setdefault(what, str(error).strip().partition("\n")[0])

    def notes(self) -> list[str]:
        """What cannot be told here, and why, one sentence each."""
        told = [f"{what}: torch says {why}" for what, why in self._refusals.items()]
        return [*told, *([self._nvml.note] if self._nvml.note else [])]

    def remains(self) -> list[str]:
        """What stays when the agent leaves, one sentence each."""
        if not len(self._owned):
            return []
        return [
            f"{len(self._owned)} events and pieces of pinned memory of CUDA's, which forked"
            " children would die of if they were given back: the next agent uses them again."
        ]

    @_noted("allocated_bytes is NULL")
    def allocated_bytes(self) -> int | None:
        """Bytes handed out by its allocator; None when it is not in use, or does not tell.

        Needs no driver call, so it is safe during graph capture.
        """
        cuda, device = device_api(), self._in_use()
        if device is None:
            return None
        allocated: int = cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"][
            "current"
        ]
        return allocated

    @_noted("losses and norms of the device are NULL")
    def copy_number(self, tensor: Tensor) -> PendingNumber | None:
        """Have a tensor of one element brought to the host; None when that cannot be done now.

        Queued behind the work that makes the number.
        """
        if tensor.device.type != device_kind() or is_capturing():
            return None
        if self._device is None:
            self.meet(tensor.device)
        index = tensor.device.index
        if index not in self._pinned:
            self._pinned[index] = Pinned(self._owned, self._marks, (self._events, index))
        pending = self._pinned[index].bring(sys.modules["torch"], tensor)
        if pending is None:
            self.missed += 1
        return pending

    def copy_numbers(self, tensor: Tensor) -> PendingNumbers | None:
        """The same for a tensor of one dimension."""
        pending: Any = self.copy_number(tensor)  # whose place is as wide as the tensor
        numbers: PendingNumbers | None = pending
        return numbers

    def mark(self, device: Device | None = None) -> Any | None:
        """Mark a moment in this thread's queue of a device; None when that cannot be done now.

        On a device that has no context there is no work to be marked.

        Args:
            device: That of some tensor; None for the training's.
        """
        return self._mark(self._api, device) if self._api.is_initialized() else None

    @_noted("device times are NULL")
    def _mark(self, cuda: Any, device: Device | None) -> Any | None:
        """The same, where a device is in use."""
        if is_capturing():
            return None
        index = self._here() if device is None else device.index
        return self._marks.set(cuda, index) if self._has_context(index) else None

    def between(self, first: Any, last: Any) -> PendingNumber | None:
        """The seconds that the device took from one mark to another; None for two devices."""
        return Seconds(first, last) if first.lane.device == last.lane.device else None

    @_noted("mfu of python.steps is NULL")
    def device_model(self) -> DeviceModel | None:
        """What the device is; None when it is not in use."""
        device = self._in_use()
        if device is not None and device not in self._models:
            if is_capturing():
                return None
            told = device_api().get_device_properties(device)
            processors = getattr(told, "multi_processor_count", None)
            self._models[device] = DeviceModel(told.name, processors)
        return None if device is None else self._models[device]

    @_noted("the allocator's figures of python.memory are NULL")
    def memory_figures(self) -> DeviceMemory | None:
        """The allocator's figures; None when it is not in use, or does not tell."""
        device = self._in_use()
        if device is None:
            return None
        stats = device_api().memory_stats_as_nested_dict(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return DeviceMemory(
            f"{device_kind()}:{device}",
            allocated["current"],
            allocated["peak"],
            reserved["current"],
            reserved["peak"],
        )

    @_noted("device_used_bytes of python.memory is NULL")
    def device_totals(self, *, fresh: bool = False) -> DeviceTotals | None:
        """The memory of that whole device, by all programs; None where NVML does not tell it.

        Args:
            fresh: Whether to ask now, which may take a while: else it is as old as the last sample.
        """
        if fresh and (device := self._seen_by_nvml()) is not None:
            self._totals = self._nvml.totals(self._uuids_of(device))
        return self._totals

    @_noted("python.devices is empty")
    def device_sample(self) -> DeviceSample | None:
        """What NVML says that device does now; takes a while, so not for the training's threads."""
        device = self._seen_by_nvml()
        if device is None or (device not in self._uuids and is_capturing()):
            return None
        sample = self._nvml.sample(f"{device_kind()}:{device}", self._uuids_of(device))
        self._totals = None if sample is None else sample.totals
        return sample

    def _seen_by_nvml(self) -> int | None:
        """The number of the training's device; None while none is in use that NVML knows."""
        other = maker()
        if other is not None:
            self._nvml.note = not_of(other)
            return None
        return self._in_use()

    def _uuids_of(self, device: int) -> tuple[str, ...]:
        """What NVML may call a device."""
        if device not in self._uuids:
            cuda = device_api()
            told = getattr(cuda.get_device_properties(device), "uuid", None)
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            uuid = None if told is None else str(told)
            self._uuids[device] = uuids_of(uuid, visible=visible, ordinal=device)
        return self._uuids[device]

    def watch_out_of_memory(self, told: OutOfMemory) -> bool:
        """Have a function called when memory runs out; False while the device is not in use.

        Torch crashes when it is asked before CUDA is in use.

        Args:
            told: Gets the device's number, the bytes asked for, those there are, and those free.
        """
        torch = sys.modules["torch"]
        if not is_in_use():
            return False
        # XPU's allocator tells nobody: there such errors are known by their exceptions only.
        may_tell = device_kind() == "cuda"
        attach = (
            getattr(torch._C, "_cuda_attach_out_of_memory_observer", None) if may_tell else None
        )
        if attach is not None:
            try:
                attach(told)
            except RuntimeError as error:  # of an allocator that tells nobody: do not ask again
                pass_on()
                self._refused("out-of-memory errors are known by their exceptions only", error)
        return True

    @_noted("what the allocator had when memory ran out is NULL", (None, None))
    def allocator_bytes(self, index: int) -> tuple[int | None, int | None]:
        """What a device's allocator has handed out, and taken from the device; without waiting."""
        stats = device_api().memory_stats_as_nested_dict(index)
        return tuple(
            [stats[f"{what}_bytes"]["all"]["current"] for what in ("allocated", "reserved")]
        )

    @_noted("the states of the device's random number generators are not known")
    def generator_states(self) -> list[Any] | None:
        """The states of its random number generators; None when it is not in use."""
        cuda = device_api()
        return list(cuda.get_rng_state_all()) if cuda.is_initialized() else None

    @_noted("python.memory_segments is empty")
    def segments(self) -> list[dict[str, Any]] | None:
        """What its allocator has reserved, as torch tells it; None when nothing tells it.

        Asks the allocator, not the driver, and for no history.
        """
        cuda = device_api()
        if not cuda.is_initialized():
            return None
        has_choice = "include_traces" in inspect.signature(cuda.memory_snapshot).parameters
        asked = {"include_traces": False} if has_choice else {}
        found: list[dict[str, Any]] = cuda.memory_snapshot(**asked)
        return found

    @_noted("the pinned memory in python.memory_segments is not known")
    def pinned_memory(self) -> PinnedMemory | None:
        """What torch has pinned; None while no device is in use, or where nothing tells it."""
        return pinned_by_torch()

    def check_devices(self) -> list[DeviceCheck]:
        """Have the devices in use compute something: name, whether right, seconds, and why not.

        Takes a while, so not for the training's threads; none while no device is in use.
        """
        api = device_api()
        if not api.is_initialized():
            return []
        used = [index for index in range(api.device_count()) if self._has_context(index)]
        return check_devices(used, self.copy_number)

    def empty_cache(self) -> bool:
        """Have its allocator give back what is not in use; False when it is not in use itself.

        Waits for the device: only for who has asked for it.
        """
        cuda = device_api()
        if not cuda.is_initialized() or is_capturing():
            return False
        cuda.empty_cache()
        return True

    @_noted("the device's peaks go on", otherwise=False)
    def reset_peaks(self) -> bool:
        """Have the device's peaks begin anew; False when it is not in use."""
        device = self._in_use()
        if device is None:
            return False
        device_api().reset_peak_memory_stats(device)
        return True

    @_noted("code that is sent uses the device that its thread begins with")
    def use_device(self) -> None:
        """Have this thread use the training's device: each thread has one of its own."""
        device = self._in_use()
        if device is not None and self._has_context(device):
            device_api().set_device(device)

    def _in_use(self) -> int | None:
        """The number of the training's device; None while none is in use."""
        return self._here() if device_api().is_initialized() else None

    def _here(self) -> int:
        """The device that this thread computes on.

        One that was chosen in it, as those of autograd and of DataParallel have; where none was,
        the first is only what a thread begins with, and says nothing.
        """
        chosen: int = device_api().current_device()
        return chosen or self._device or 0

    def _has_context(self, device: int) -> bool:
        """Whether a device is in use in this process, without having it used.

        XPU's do not tell: of these it is the training's, and no other.
        """
        if device_kind() == "xpu":
            return device == self._device
        if device not in self._contexts:
            ask = getattr(sys.modules["torch"]._C, "_cuda_hasPrimaryContext", None)
            if ask is not None and not ask(device):
                return False
            self._contexts.add(device)
        return True
