"""The memory cgroup of a process: what it uses, what it may, and how often the kernel has killed.

Rules of this file: reads the kernel's files only, of cgroup v2 and v1; what is not told is None.
Limits are those of the whole branch of the tree: in a container they mostly stand further up than
the process's own group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from .kernel_files import read_text

NEAR_LIMIT = 0.9
"""The part of its limit from which on a cgroup is close to it."""
_UNLIMITED = 1 << 60
"""Version 1 writes the largest number of pages where there is no limit."""
_DEEPEST = 32
_NAMES = {
    True: ("current", "max", "events"),
    False: ("usage_in_bytes", "limit_in_bytes", "oom_control"),
}
"""What versions 2 and 1 call the first three of the files of a `CgroupPaths`."""


class CgroupPaths(NamedTuple):
    """The files of one memory cgroup, by version of the interface.

    Attributes:
        stat: Has the part of its use that is file cache.
        pressure: Has how long its processes have waited for memory.
    """

    current: str
    limit: str
    events: str
    stat: str
    pressure: str

    def current_bytes(self) -> int | None:
        """What it uses, file cache included."""
        return parse_bytes(read_text(self.current))

    def limit_bytes(self) -> int | None:
        """What it may use."""
        return parse_bytes(read_text(self.limit))

    def working_bytes(self) -> int | None:
        """What it uses without the file cache that has not been used lately."""
        used, cached = self.current_bytes(), parse_cache(read_text(self.stat))
        return None if used is None else max(0, used - (cached or 0))

    def oom_kills(self) -> int | None:
        """How many of its processes the kernel OOM killer has killed."""
        return parse_oom_kills(read_text(self.events))


def find_cgroup(pid: int | str, *, proc: str = "/proc") -> CgroupPaths | None:
    """The cgroup, of a process's own and those around it, with the tightest limit.

    Its own where none has a limit; None where there is no memory cgroup to be seen.

    Args:
        proc: Where the kernel's files about processes are.
    """
    found = _branch(read_text(f"{proc}/{pid}/cgroup"), read_text(f"{proc}/self/mountinfo"))
    there = [paths for paths in found if os.path.exists(paths.current)]
    limits = [(paths.limit_bytes(), paths) for paths in there]
    limited = [(limit, paths) for limit, paths in limits if limit is not None]
    if limited:
        return min(limited, key=lambda pair: pair[0])[1]
    return there[0] if there else None


def _branch(membership: str, mounts: str) -> list[CgroupPaths]:
    """The cgroups that a process is in, its own first, then those around it."""
    for is_new, folders in branches(membership, mounts, "memory"):
        branch = [_files(folder, *_NAMES[is_new]) for folder in folders]
        if any(os.path.exists(paths.current) for paths in branch):
            return branch  # where both versions are mounted, one of them has the memory
    return []


def branches(membership: str, mounts: str, controller: str) -> Iterator[tuple[bool, list[str]]]:
    """The folders that may be those of a process's cgroups, its own first, then those around it.

    Args:
        membership: The process's file ``cgroup``.
        mounts: The file ``mountinfo``.
        controller: What is looked for, such as ``memory``.

    Yields:
        Whether the folders are of version 2, and they.
    """
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        is_new = number == "0" and not controllers
        if not is_new and controller not in controllers.split(","):
            continue
        mount = _mount(mounts, controller, is_new=is_new)
        if mount is None:
            continue
        root, place = mount
        inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
        yield is_new, _upwards(place, inside)


def _upwards(place: str, inside: str) -> list[str]:
    """A folder below a mount and those around it, up to the mount."""
    parts = [part for part in inside.split("/") if part and part != ".."][:_DEEPEST]
    return ["/".join((place, *parts[:count])) for count in range(len(parts), -1, -1)]


def _mount(mounts: str, controller: str, *, is_new: bool) -> tuple[str, str] | None:
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        fields = before.split()
        has_it = controller in options.rpartition(" ")[2].split(",")
        if kind == ("cgroup2" if is_new else "cgroup") and (is_new or has_it):
            return fields[3], fields[4]
    return None


def _files(folder: str, *names: str) -> CgroupPaths:
    # Version 1 has no file of pressure, so the machine's is taken.
    return CgroupPaths(*(f"{folder}/memory.{name}" for name in (*names, "stat", "pressure")))


def parse_bytes(text: str | bytes) -> int | None:
    """A file of one number; None for no number, and for what means no limit."""
    try:
        number = int(text)
    except ValueError:  # `max`, or nothing
        return None
    return None if number >= _UNLIMITED else number


def parse_oom_kills(text: str) -> int | None:
    """The kills in `memory.events` or `memory.oom_control`; older kernels do not count them."""
    return number_after("oom_kill", text)


def parse_cache(text: str) -> int | None:
    """The file cache that can be dropped at once, in `memory.stat`, groups below included."""
    return _of_files(text, "inactive")


def parse_file_cache(text: str) -> int | None:
    """All file cache in `memory.stat`, groups below included: what goes before anybody is killed.

    What files in memory take is not among it.
    """
    return _of_files(text, "inactive", "active")


def _of_files(text: str, *kinds: str) -> int | None:
    """Some of the lists of file cache together; None where not all are told."""
    for prefix in ("total_", ""):  # version 1 tells both
        found = [number_after(f"{prefix}{kind}_file", text) for kind in kinds]
        sizes = [size for size in found if size is not None]
        if len(sizes) == len(kinds):
            return sum(sizes)
    return None


def parse_pressure(text: str, kind: str) -> float | None:
    """The share of the last ten seconds that processes waited.

    Args:
        kind: ``some`` of them, or the ``full`` number.
    """
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [kind] and len(words) > 1 and words[1].startswith("avg10="):
            return round(float(words[1].removeprefix("avg10=")) / 100, 6)
    return None


def number_after(name: str, text: str) -> int | None:
    """The number in the line that begins with a name."""
    for line in text.splitlines():
        words = line.split() if line.startswith(name) else ()
        if len(words) == 2 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None
