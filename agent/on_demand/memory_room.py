"""How much memory this process may have in all, and what it needs beside its tensors.

Rules of this file: reads files of the kernel, and asks the seam of the accelerator; what cannot be
read is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...linux.cgroup import find_cgroup
from ...linux.kernel_files import read_text, sizes_in

if TYPE_CHECKING:
    from ..sources.accelerator import Accelerator


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
    status, machine = (sizes_in(read_text(f"/proc/{file}")) for file in ("self/status", "meminfo"))
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


def device_room(accelerator: Accelerator) -> Room:
    """Of a device, by its allocator and its driver; other programs keep what they have."""
    figures, totals = accelerator.memory_figures(), accelerator.device_totals(fresh=True)
    if figures is None:
        return Room(None, None, None, None)
    slack = figures.peak_reserved_bytes - figures.peak_bytes
    if totals is None:
        return Room(None, None, slack, figures.peak_bytes)
    outside = max(0, totals.used_bytes - figures.reserved_bytes)
    limit = f"the memory of {figures.device}, less what libraries and other programs use"
    return Room(totals.total_bytes - outside, limit, slack, figures.peak_bytes)


def _group_room(resident: int) -> int | None:
    """What the cgroup leaves to this process, with what it has already."""
    group = find_cgroup("self")
    if group is None:
        return None
    limit, used = group.limit_bytes(), group.working_bytes()
    return None if limit is None or used is None else limit - used + resident
