"""What NVML tells of a whole device's memory, other programs' part included.

Rules of this file: needs no CUDA context and makes none; a device is found by its UUID, since NVML
counts devices otherwise than a program that sees only some of them. The package nvidia-ml-py is
optional: without it, or where the driver does not tell, there are no figures.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MISSING = (
    "device_used_bytes of python.memory is NULL: nvidia-ml-py is not installed"
    " (pip install 'probing-agent[nvml]')"
)
_KINDS = ("GPU-", "MIG-")


class DeviceTotals(NamedTuple):
    """The memory of a whole device, or of the slice of one that MIG has made."""

    used_bytes: int
    total_bytes: int


class Nvml:
    """Asks NVML, from the first question on.

    Attributes:
        note: Why there are no figures, if there are none.
    """

    def __init__(self, module: Any = None) -> None:
        """Prepare.

        Args:
            module: Stands in for ``pynvml``.
        """
        self._module = module
        self._is_ready = False
        self._handles: dict[tuple[str, ...], Any] = {}
        self.note: str | None = None

    def totals(self, uuids: tuple[str, ...]) -> DeviceTotals | None:
        """The memory of a device.

        Args:
            uuids: What it may be called, the likeliest first.
        """
        if not self._is_ready:
            self._begin()
        if self._module is None:
            return None
        if uuids not in self._handles:
            self._handles[uuids] = self._find(uuids)
        handle = self._handles[uuids]
        if handle is None:
            return None
        try:
            memory = self._module.nvmlDeviceGetMemoryInfo(handle)
        except self._module.NVMLError as error:
            self._give_up(error)
            return None
        return DeviceTotals(int(memory.used), int(memory.total))

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

    def _find(self, uuids: tuple[str, ...]) -> Any:
        """The handle of the first of them that NVML knows; None for none."""
        for uuid in uuids:
            try:
                return self._module.nvmlDeviceGetHandleByUUID(uuid)
            except self._module.NVMLError:
                continue
        self.note = f"device_used_bytes of python.memory is NULL: NVML knows no device {uuids}"
        return None

    def _give_up(self, error: Exception) -> None:
        """Ask no more."""
        self._module = None
        self.note = f"device_used_bytes of python.memory is NULL: NVML says {error}"


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
