"""The rows of python.host_memory: a job's processes, as the kernel tells of them.

Rules of this file: reads under /proc only and needs no help of the processes, so the agent and the
terminal compute the same. A process that ends meanwhile has no row; what a kernel does not tell, or
not to us, is NULL.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..messages.common import LiveRows
from ..own_files import SQL_WORKER, SQL_WORKER_PARENT, is_our_command
from ..tables import HOST_MEMORY
from ..units import percent, size
from . import process
from .cgroup import NEAR_LIMIT, CgroupPaths, find_cgroup, parse_pressure
from .kernel_files import read_text, sizes_in

_WORKER_NAME = "pt_data_worker"  # what torch calls the main thread of a DataLoader's worker
_SHM = "/dev/shm/"  # noqa: S108 - looked at, never written to


class WorkerMemory(NamedTuple):
    """One worker of a data loader.

    Pages that it has from its parent count in both figures from the fork on, so that neither
    changes as it writes to them and gets copies; what it makes raises them.

    Attributes:
        anonymous_bytes: What it has in memory that is of no file.
        peak_bytes: The most that it ever had in memory, files and what it shares included.
    """

    anonymous_bytes: int
    peak_bytes: int


def host_memory_rows(pid: int) -> LiveRows:
    """The rows of a job: its trainer first, then its processes and its agent's, by number."""
    seen: set[tuple[int, int]] = set()
    groups: dict[str, dict[str, Any]] = {}
    rows = []
    for number in (pid, *sorted(descendants(pid) | sql_workers(pid))):
        row = _row(number, is_trainer=number == pid, seen=seen, groups=groups)
        if row is not None:
            rows.append(row)
    return LiveRows.of_dicts(HOST_MEMORY, rows)


def near_limit(pid: int) -> str | None:
    """A sentence about a process whose cgroup is close to its limit; None for any other."""
    paths = find_cgroup(pid)
    limit = paths.limit_bytes() if paths is not None else None
    used = paths.working_bytes() if paths is not None else None
    return None if limit is None or used is None else sentence_of(used, limit)


def sentence_of(used_bytes: int, limit_bytes: int) -> str | None:
    """What to say about a cgroup; None while it is far from its limit."""
    if used_bytes < NEAR_LIMIT * limit_bytes:
        return None
    return (
        f"its memory cgroup uses {size(used_bytes)} of {size(limit_bytes)}"
        f" ({percent(used_bytes / limit_bytes, digits=0)}): at the limit the kernel kills without a"
        " word; python.host_memory tells who takes it"
    )


def _row(
    pid: int, *, is_trainer: bool, seen: set[tuple[int, int]], groups: dict[str, dict[str, Any]]
) -> dict[str, Any] | None:
    """One process; None when it is gone.

    Args:
        seen: Files in /dev/shm that other rows have counted.
        groups: The columns of cgroups that were read before, by membership.
    """
    facts, status = process.facts(pid), process.status(pid)
    if facts is None or facts.state in "ZX" or not status:
        return None
    sizes = sizes_in(read_text(f"/proc/{pid}/smaps_rollup"))
    name = status.get("Name", "")
    membership = read_text(f"/proc/{pid}/cgroup")
    if membership not in groups:
        groups[membership] = _group_columns(find_cgroup(pid))
    return {
        "pid": pid,
        "role": _role(pid, name, is_trainer=is_trainer),
        "name": name,
        "resident_bytes": facts.resident_bytes,
        "proportional_bytes": sizes.get("Pss"),
        "shared_bytes": _sum(sizes, "Shared_Clean", "Shared_Dirty"),
        "private_bytes": _sum(sizes, "Private_Clean", "Private_Dirty"),
        "swap_bytes": _kib(status.get("VmSwap")),
        "locked_bytes": _locked(status),
        "shm_bytes": _shm_bytes(pid, seen),
        "threads": int(status["Threads"]) if "Threads" in status else None,
        **groups[membership],
    }


def _group_columns(paths: CgroupPaths | None) -> dict[str, Any]:
    """What is the same for all processes of a cgroup."""
    own = read_text(paths.pressure) if paths is not None else ""
    pressure = own or read_text("/proc/pressure/memory")
    shares = {f"pressure_{kind}": parse_pressure(pressure, kind) for kind in ("some", "full")}
    if paths is None:
        return shares
    return {
        "cgroup_bytes": paths.current_bytes(),
        "cgroup_working_bytes": paths.working_bytes(),
        "cgroup_limit_bytes": paths.limit_bytes(),
        "cgroup_oom_kills": paths.oom_kills(),
        **shares,
    }


def descendants(pid: int) -> set[int]:
    """The processes that one has started, and those that they have started in turn."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        facts = process.facts(int(name)) if name.isdecimal() else None
        if facts is not None:
            children.setdefault(facts.parent, []).append(int(name))
    found: set[int] = set()
    left = [pid]
    while left:
        new = [child for child in children.get(left.pop(), []) if child not in found]
        found.update(new)
        left += new
    return found - {os.getpid()}  # who asks may have been started by the process


def sql_workers(pid: int) -> set[int]:
    """The SQL workers of a process's agent, which are no children of it, and their parents.

    Its run folder, whose name begins with its number, is among their first words.
    """
    found: set[int] = set()
    for number in _processes_like(pid):
        words = process.command(number)
        if os.path.basename("".join(words[2:3])) in (SQL_WORKER, SQL_WORKER_PARENT):
            folders = (word for word in words[3:8] if os.path.basename(word).startswith(f"{pid}-"))
            found.update(number for _ in folders)
    return found - {os.getpid()}


def _processes_like(pid: int) -> Iterator[int]:
    """The processes of the same user."""
    with contextlib.suppress(OSError):
        uid = os.stat(f"/proc/{pid}").st_uid
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it has ended
                if os.stat(f"/proc/{name}").st_uid == uid:
                    yield int(name)


def worker_memory(pid: int) -> dict[int, WorkerMemory]:
    """The workers of a process's loaders, by number; none where the kernel does not tell of any."""
    found = {}
    for number in sorted(descendants(pid)):
        status = process.status(number)
        sizes = [_kib(status.get(name)) for name in ("RssAnon", "VmHWM")]
        if status.get("Name") == _WORKER_NAME and None not in sizes:
            found[number] = WorkerMemory(*(size or 0 for size in sizes))
    return found


def _role(pid: int, name: str, *, is_trainer: bool) -> str:
    """What a process is there for."""
    if is_trainer:
        return "trainer"
    if name == _WORKER_NAME:
        return "data_worker"
    return "probing" if is_our_command(process.command(pid)) else "child"


def _sum(sizes: dict[str, int], *names: str) -> int | None:
    """Some of the sizes together; None where the kernel tells none of them."""
    found = [sizes[name] for name in names if name in sizes]
    return sum(found) if found else None


def _kib(text: str | None) -> int | None:
    """A size of the file ``status`` in bytes."""
    return int(text.split()[0]) << 10 if text else None


def _locked(status: dict[str, str]) -> int | None:
    """What a process has locked, by itself (VmLck) or by way of a driver (VmPin)."""
    parts = [_kib(status.get(name)) for name in ("VmLck", "VmPin")]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _shm_bytes(pid: int, seen: set[tuple[int, int]]) -> int | None:
    """The files in /dev/shm that a process holds and that no row has counted so far."""
    held = _open_files(pid)
    if held is None:
        return None
    for key, mapped in _mapped_files(pid).items():
        held.setdefault(key, mapped)
    new = {key: mapped for key, mapped in held.items() if key not in seen}
    seen.update(new)
    return sum(new.values())


def _open_files(pid: int) -> dict[tuple[int, int], int] | None:
    """What the files in /dev/shm take that a process has open; None when it may not be asked."""
    found = {}
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    for number in numbers:
        path = f"/proc/{pid}/fd/{number}"
        try:
            if os.readlink(path).startswith(_SHM):
                stat = os.stat(path)
                found[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
        except OSError:  # closed meanwhile
            continue
    return found


def _mapped_files(pid: int) -> dict[tuple[int, int], int]:
    """What the files in /dev/shm take that a process has mapped.

    Of one that has no name any more it is what is mapped of it, which may be more than it takes.
    """
    found: dict[tuple[int, int], int] = {}
    for line in read_text(f"/proc/{pid}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith(_SHM):
            continue
        major, _, minor = fields[3].partition(":")
        key = (os.makedev(int(major, 16), int(minor, 16)), int(fields[4]))
        begin, _, end = fields[0].partition("-")
        found[key] = found.get(key, 0) + int(end, 16) - int(begin, 16)
        taken = _taken(fields[5], key)
        if taken is not None:
            found[key] = taken
    return found


def _taken(path: str, key: tuple[int, int]) -> int | None:
    """What a file takes, if it is still the one of that number."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_blocks * 512 if (stat.st_dev, stat.st_ino) == key else None
