"""What NVML tells of a whole device, other programs' part included.

Rules of this file: needs no CUDA context and makes none; runs in a thread of the agent's own, since
the driver may keep who asks waiting. A device is found by its UUID: NVML counts devices otherwise
than a program that sees only some of them. The package nvidia-ml-py is optional: without it, or
where the driver does not tell, there are no figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

MISSING = (
    "device_used_bytes of python.memory is NULL and python.devices empty: nvidia-ml-py is not"
    " installed (pip install 'probing-agent[nvml]')"
)
_NONE = "device_used_bytes of python.memory is NULL and python.devices empty"
_KINDS = ("GPU-", "MIG-")
_GPU_TEMPERATURE, _SM_CLOCK, _MEMORY_CLOCK = 0, 1, 2
_UNCORRECTED, _VOLATILE = 1, 0
_XID_EVENTS = 8
_PERCENT, _MILLI, _KILO, _KIB = 0.01, 1e-3, 1000, 1024
_PCIE_SENT, _PCIE_RECEIVED = 0, 1
_NVLINK_FIELDS = [138, 139]
"""What all links of NVLink have sent and received, in KiB, since the driver was loaded."""
_REASONS = (
    (0x2, "application clocks"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal"),
    (0x40, "hardware thermal"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)
"""Why clocks are held down, by NVML's bits; the first, that the device is idle, is no reason."""


class DeviceTotals(NamedTuple):
    """The memory of a whole device, or of the slice of one that MIG has made."""

    used_bytes: int
    total_bytes: int


class DeviceSample(NamedTuple):
    """What a device does now; None for what it does not tell.

    Attributes:
        device: As torch counts it, such as ``cuda:0``.
        busy: The part of the time in which it did anything.
        memory_busy: The part of the time in which its memory was read or written.
        own_bytes: What of its memory this process has, as the driver sees it.
        processes: How many compute on it.
        throttled: Why its clocks are held down; empty where they are not.
        ecc_errors: Errors of its memory that could not be corrected, since the driver was loaded.
        remapped_rows: Rows of its memory that were replaced by spare ones for such errors.
        xid: The number of an error that the driver has told since the sample before.
        pcie_sent_bytes_per_s: What it has sent by PCIe, over the last 20 ms.
        nvlink_sent_bytes_per_s: What it has sent by NVLink, since the sample before.
    """

    device: str
    uuid: str
    totals: DeviceTotals
    busy: float | None
    memory_busy: float | None
    own_bytes: int | None
    processes: int | None
    power_w: float | None
    power_limit_w: float | None
    sm_mhz: int | None
    memory_mhz: int | None
    throttled: str | None
    temperature_c: int | None
    ecc_errors: int | None
    remapped_rows: int | None
    xid: int | None
    pcie_sent_bytes_per_s: float | None = None
    pcie_received_bytes_per_s: float | None = None
    nvlink_sent_bytes_per_s: float | None = None
    nvlink_received_bytes_per_s: float | None = None


class Nvml:
    """Asks NVML, from the first question on.

    Attributes:
        note: Why there are no figures, if there are none.
    """

    def __init__(self, module: Any = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare.

        Args:
            module: Stands in for ``pynvml``.
        """
        self._module = module
        self._is_ready = False
        self._found: dict[tuple[str, ...], tuple[str, Any]] = {}
        self._events: Any = None
        self._links: tuple[float, list[int]] | None = None
        self._clock = clock
        self.note: str | None = None

    def totals(self, uuids: tuple[str, ...]) -> DeviceTotals | None:
        """The memory of a device.

        Args:
            uuids: What it may be called, the likeliest first.
        """
        found = self._find(uuids)
        if found is None:
            return None
        try:
            memory = self._module.nvmlDeviceGetMemoryInfo(found[1])
        except self._module.NVMLError as error:
            self._give_up(error)
            return None
        return DeviceTotals(int(memory.used), int(memory.total))

    def sample(self, device: str, uuids: tuple[str, ...]) -> DeviceSample | None:
        """All that a device tells; None where it is not known.

        Args:
            uuids: As of `totals`.
        """
        totals = self.totals(uuids)
        if totals is None:
            return None
        uuid, handle = self._found[uuids]
        rates = self._ask("UtilizationRates", handle)
        others = self._ask("ComputeRunningProcesses", handle)
        power, limit = (self._ask(n, handle) for n in ("PowerUsage", "EnforcedPowerLimit"))
        rows = self._ask("RemappedRows", handle)
        links = self._link_rates(handle)
        return DeviceSample(
            device=device,
            uuid=uuid,
            totals=totals,
            busy=None if rates is None else rates.gpu * _PERCENT,
            memory_busy=None if rates is None else rates.memory * _PERCENT,
            own_bytes=_own_bytes(others),
            processes=None if others is None else len(others),
            power_w=None if power is None else power * _MILLI,
            power_limit_w=None if limit is None else limit * _MILLI,
            sm_mhz=self._ask("ClockInfo", handle, _SM_CLOCK),
            memory_mhz=self._ask("ClockInfo", handle, _MEMORY_CLOCK),
            throttled=_words(self._reasons(handle)),
            temperature_c=self._ask("Temperature", handle, _GPU_TEMPERATURE),
            ecc_errors=self._ask("TotalEccErrors", handle, _UNCORRECTED, _VOLATILE),
            remapped_rows=None if rows is None else int(rows[0]) + int(rows[1]),
            xid=self._xid(handle),
            pcie_sent_bytes_per_s=self._pcie_rate(handle, _PCIE_SENT),
            pcie_received_bytes_per_s=self._pcie_rate(handle, _PCIE_RECEIVED),
            nvlink_sent_bytes_per_s=links[0],
            nvlink_received_bytes_per_s=links[1],
        )

    def _ask(self, what: str, handle: Any, *arguments: object) -> Any:
        """One figure; None for what this driver, this package or this device does not tell."""
        function: Callable[..., Any] | None = getattr(self._module, f"nvmlDeviceGet{what}", None)
        if function is None:
            return None
        try:
            return function(handle, *arguments)
        except self._module.NVMLError:
            return None

    def _pcie_rate(self, handle: object, direction: int) -> float | None:
        """Bytes per second; to ask takes the 20 ms that are counted."""
        told = self._ask("PcieThroughput", handle, direction)
        return None if told is None else float(told) * _KILO

    def _link_rates(self, handle: object) -> tuple[float | None, float | None]:
        """What was sent and received by NVLink per second since this was last asked."""
        fields = self._ask("FieldValues", handle, _NVLINK_FIELDS) or ()
        if len(fields) != len(_NVLINK_FIELDS) or any(one.nvmlReturn for one in fields):
            return None, None
        now, before = self._clock(), self._links
        counts = [int(one.value.ullVal) for one in fields]
        self._links = now, counts
        if before is None or now <= before[0]:
            return None, None
        sent, received = (
            (count - last) * _KIB / (now - before[0]) if count >= last else None
            for count, last in zip(counts, before[1], strict=True)
        )
        return sent, received

    def _reasons(self, handle: object) -> int | None:
        """Why clocks are held down, by either name of the function."""
        told = self._ask("CurrentClocksEventReasons", handle)
        found: int | None = (
            self._ask("CurrentClocksThrottleReasons", handle) if told is None else told
        )
        return found

    def _xid(self, handle: Any) -> int | None:
        """An error that the driver has told since this was last asked; does not wait for one."""
        module = self._module
        try:
            if self._events is None:
                self._events = module.nvmlEventSetCreate()
                module.nvmlDeviceRegisterEvents(handle, _XID_EVENTS, self._events)
            return int(module.nvmlEventSetWait_v2(self._events, 0).eventData)
        except (module.NVMLError, AttributeError):  # none, or not told here
            return None

    def _begin(self) -> None:
        """Load and initialise it, once."""
        self._is_ready = True
        if self._module is None:
            try:
                import pynvml
            except ImportError:
                self.note = MISSING
                return
            self._module = pynvml
        try:
            self._module.nvmlInit()
        except self._module.NVMLError as error:
            self._give_up(error)

    def _find(self, uuids: tuple[str, ...]) -> tuple[str, Any] | None:
        """The UUID and the handle of the first of them that NVML knows; None for none."""
        if not self._is_ready:
            self._begin()
        if self._module is None:
            return None
        if uuids not in self._found:
            for uuid in uuids:
                try:
                    self._found[uuids] = uuid, self._module.nvmlDeviceGetHandleByUUID(uuid)
                    break
                except self._module.NVMLError:
                    continue
            else:
                self.note = f"{_NONE}: NVML knows no device {uuids}"
        return self._found.get(uuids)

    def _give_up(self, error: Exception) -> None:
        """Ask no more."""
        self._module = None
        self.note = f"{_NONE}: NVML says {error}"


def _own_bytes(processes: Any) -> int | None:
    """What this process has; None where the driver does not tell, as in some containers."""
    own = [one.usedGpuMemory for one in processes or () if one.pid == os.getpid()]
    return int(own[0]) if own and own[0] is not None else None


def _words(reasons: int | None) -> str | None:
    """Why clocks are held down."""
    if reasons is None:
        return None
    return ";".join(name for bit, name in _REASONS if reasons & bit)


def not_of(maker: str) -> str:
    """Why there are no figures of another maker's devices."""
    return f"{_NONE}: NVML knows no device of {maker}'s"


def uuids_of(uuid: str | None, *, visible: str | None, ordinal: int) -> tuple[str, ...]:
    """What a device may be called, the likeliest first.

    Args:
        uuid: The one that torch tells, without what it is of.
        visible: ``CUDA_VISIBLE_DEVICES``, whose words may name devices.
        ordinal: The device's number in this process.
    """
    words = [word.strip() for word in (visible or "").split(",")]
    named = words[ordinal] if ordinal < len(words) else ""
    own = [uuid] if uuid and uuid.startswith(_KINDS) else []
    told = own or ([f"{kind}{uuid}" for kind in _KINDS] if uuid else [])
    # A word may be shortened to what tells it from others, so it is the second choice; but the
    # UUID that torch tells of a slice may be that of the device around it.
    if named.startswith("MIG-"):
        return (named, *(name for name in told if name != named))
    return (*told, *([named] if named.startswith("GPU-") and named not in told else []))
