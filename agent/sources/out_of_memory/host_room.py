"""How much memory the host still gives to this process.

Rules of this file: reads three small files of the kernel's, and nothing else; runs where memory has
just run out, in the thread that failed.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ....ring.format import NULL_INT
from ....tables import OOM_BOUNDS

_ADDRESS_SPACE, _MACHINE = OOM_BOUNDS.index("address_space"), OOM_BOUNDS.index("machine")


class HostRoom(NamedTuple):
    """The host's memory as a process finds it; `NULL_INT` for what cannot be read.

    Attributes:
        bound: The number of what `total` is, in `OOM_BOUNDS`.
    """

    bound: int
    total: int
    free: int
    resident: int


def host_room(spared_bytes: int = 0) -> HostRoom:
    """What there is now, under the limit of the address space where there is one.

    Args:
        spared_bytes: Address space that has just been let go, and does not count as free.

    Raises:
        OSError: The kernel does not say.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    size, resident = (int(word) * page for word in _read("/proc/self/statm").split()[:2])
    most = _address_space_limit(_read("/proc/self/limits"))
    if most is not None:
        return HostRoom(_ADDRESS_SPACE, most, max(0, most - size - spared_bytes), resident)
    figures = _read("/proc/meminfo")
    return HostRoom(
        _MACHINE, _figure(figures, "MemTotal:"), _figure(figures, "MemAvailable:"), resident
    )


def _address_space_limit(limits: str) -> int | None:
    """The soft limit of the address space; None where it is unlimited."""
    for line in limits.splitlines():
        if line.startswith("Max address space"):
            soft = line.split()[3]
            return int(soft) if soft.isdecimal() else None
    return None


def _figure(figures: str, name: str) -> int:
    for line in figures.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return NULL_INT


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 14).decode("ascii", "replace")
    finally:
        os.close(fd)
