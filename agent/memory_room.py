"""How much memory this process may have in all, and what it needs beside its tensors.

Rules of this file: reads files of the kernel, and asks the seam of the accelerator; what cannot be
read is None.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


class Room(NamedTuple):
    """What a device has for this process.

    Attributes:
        bytes: What the process may have in all, with what it has already.
        limit: What sets that, in words.
        fixed_bytes: What it needs beside its tensors.
        measured_bytes: The most that its tensors took, as the device's allocator has it.
    """

    bytes: int | None
    limit: str | None
    fixed_bytes: int | None
    measured_bytes: int | None


def host_room(peak_bytes: int) -> Room:
    """Of the machine and the cgroup.

    Args:
        peak_bytes: The most that tensors take in a step as it is. The process's own highest
            resident set lies above that by what else it needs: code, workspaces of kernels, data.
    """
    status, machine = _sizes(_STATUS), _sizes(_MEMINFO)
    highest, resident = status.get("VmHWM"), status.get("VmRSS")
    fixed = None if highest is None else max(0, highest - peak_bytes)
    free = machine.get("MemAvailable")
    if resident is None or free is None:
        return Room(None, None, fixed, None)
    room, limit = free + resident, "the memory that this machine has free"
    group = _group_room(resident)
    if group is not None and group < room:
        room, limit = group, "the limit of its cgroup"
    return Room(room, limit, fixed, None)


def device_room(accelerator: Any) -> Room:
    """Of a device, by its allocator and its driver; other programs keep what they have."""
    figures = getattr(accelerator, "memory_figures", lambda: None)()
    totals = getattr(accelerator, "device_totals", lambda: None)()
    if figures is None:
        return Room(None, None, None, None)
    slack = figures.peak_reserved_bytes - figures.peak_bytes
    if totals is None:
        return Room(None, None, slack, figures.peak_bytes)
    outside = max(0, totals.used_bytes - figures.reserved_bytes)
    limit = f"the memory of {figures.device}, less what is used outside of its allocator"
    return Room(totals.total_bytes - outside, limit, slack, figures.peak_bytes)


def _group_room(resident: int) -> int | None:
    """What the cgroup leaves to this process, with what it has already."""
    folder = _group_folder()
    if folder is None:
        return None
    names = (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
    for limit_name, used_name in names:
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is not None and used is not None and limit < _UNLIMITED:
            return limit - used + resident
    return None


def _group_folder() -> Path | None:
    """Where the figures of this process's cgroup are."""
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = _MOUNT if not controllers else _MOUNT / controllers
        if not controllers or "memory" in controllers.split(","):
            inside = mount / path.lstrip("/")
            return inside if inside.is_dir() else mount
    return None


def _number(path: Path) -> int | None:
    """A file with one number in it."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _sizes(path: Path) -> dict[str, int]:
    """The lines of a file of the kernel that say so many kB, in bytes."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    return {w[0].rstrip(":"): int(w[1]) << 10 for w in words if len(w) == 3 and w[2] == "kB"}
