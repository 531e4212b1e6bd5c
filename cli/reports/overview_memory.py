"""How much memory a process uses, beside what it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ProbingError
from ...linux.cgroup import find_cgroup
from ...linux.host_memory import host_memory_rows
from ...linux.kernel_files import read_text, sizes_in
from ...linux.process import facts as process_facts
from ...messages.frozen import dataclass

if TYPE_CHECKING:
    from ...client.base import Process

Row = Mapping[str, Any]

LAST_MEMORY = "SELECT * FROM python.memory ORDER BY seq DESC LIMIT 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory in use, in bytes; None for what is not known.

    Attributes:
        resident: The process's resident set.
        group: What its memory cgroup uses; None where that has no limit.
        limit: What the cgroup may use, or else what the machine has.
        is_group: Whether the limit is the cgroup's.
        device: What the device's allocator has given out.
        device_limit: What the device has.
        is_old: Whether this is what was last recorded of a process that has ended.
    """

    resident: int | None = None
    group: int | None = None
    limit: int | None = None
    is_group: bool = False
    device: int | None = None
    device_limit: int | None = None
    is_old: bool = False

    @property
    def share(self) -> float | None:
        """The part of the limit in use."""
        used = self.group if self.is_group else self.resident
        return used / self.limit if used is not None and self.limit else None


def memory_of(
    process: Process, recorded: Sequence[Row], *, is_alive: bool, pid: int | None = None
) -> MemoryUse | None:
    """The memory of a process; None where nothing tells.

    Args:
        recorded: The newest row of python.memory, if there is one.
        pid: Its number, where it is of this machine and has no record.
    """
    row = recorded[0] if recorded else None
    device, device_limit = _device(row)
    folder = process.folder
    here = pid if folder is None else folder.pid
    if not is_alive:
        return None if row is None else _of_record(row)
    live = _live(process, here)
    if live is None:
        return None if device is None else MemoryUse(device=device, device_limit=device_limit)
    limit = live["cgroup_limit_bytes"]
    machine = None if here is None else sizes_in(read_text("/proc/meminfo")).get("MemTotal")
    return MemoryUse(
        resident=live["resident_bytes"],
        group=live["cgroup_working_bytes"] if limit is not None else None,
        limit=machine if limit is None else limit,
        is_group=limit is not None,
        device=device,
        device_limit=device_limit,
    )


def memory_now(pid: int, before: MemoryUse | None) -> MemoryUse | None:
    """The memory of a process of this machine, by the two files that cost it nothing to read.

    Args:
        before: What was known of it, limits and device among it.
    """
    facts, paths = process_facts(pid), find_cgroup(pid)
    if facts is None:
        return before
    limit = None if paths is None else paths.limit_bytes()
    machine = sizes_in(read_text("/proc/meminfo")).get("MemTotal")
    return MemoryUse(
        resident=facts.resident_bytes,
        group=paths.working_bytes() if paths is not None and limit is not None else None,
        limit=machine if limit is None else limit,
        is_group=limit is not None,
        device=None if before is None else before.device,
        device_limit=None if before is None else before.device_limit,
    )


def _live(process: Process, pid: int | None) -> Row | None:
    try:
        answer = host_memory_rows(pid) if pid is not None else process.live("host_memory")
    except ProbingError:
        return None
    return next(iter(answer.dicts()), None)


def _device(row: Row | None) -> tuple[int | None, int | None]:
    """What the device's allocator has given out, and what the device has, where there is one."""
    if row is None or row["reserved_bytes"] is None:
        return None, None
    return row["allocated_bytes"], row["device_total_bytes"]


def _of_record(row: Row) -> MemoryUse:
    """What was last on record of a process that has ended."""
    limit, used = row["cgroup_limit_bytes"], row["cgroup_bytes"]
    if used is not None:  # cached files go before anybody is killed
        used -= row.get("cgroup_cache_bytes") or 0
    device, device_limit = _device(row)
    return MemoryUse(
        resident=row["resident_bytes"],
        group=used if limit is not None else None,
        limit=limit,
        is_group=limit is not None,
        device=device,
        device_limit=device_limit,
        is_old=True,
    )
