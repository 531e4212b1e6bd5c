"""What the kernel tells of memory, cheaply: the process, its cgroup and the machine.

Rules of this file: runs in the training threads, a few times per step. Files are kept open, since a
read is a tenth of opening one; those that are dear are read at most every `INTERVAL_NS`, those that
seldom change at most every `RARE_NS`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ....linux.cgroup import (
    NEAR_LIMIT,
    find_cgroup,
    parse_bytes,
    parse_file_cache,
    parse_oom_kills,
)
from ....ring.format import NULL_INT
from ....safety.guard import pass_on

INTERVAL_NS = 100_000_000
RARE_NS = 1_000_000_000
_FLAGS = os.O_RDONLY | os.O_CLOEXEC


class HostFigures(NamedTuple):
    """The columns of python.memory that are about cgroup and machine; `NULL_INT` where unknown."""

    cgroup_bytes: int = NULL_INT
    cgroup_cache_bytes: int = NULL_INT
    cgroup_limit_bytes: int = NULL_INT
    cgroup_oom_kills: int = NULL_INT
    node_used_bytes: int = NULL_INT
    node_total_bytes: int = NULL_INT


class HostFiles:
    """Reads them, from files that are opened by the first reading."""

    __slots__ = (
        "_cache", "_due_ns", "_files", "_is_open", "_newest", "_page", "_rare", "_rare_due_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._files: dict[str, int] = {}
        self._is_open = False
        self._newest = HostFigures()
        self._rare = (NULL_INT, NULL_INT)
        self._cache = NULL_INT
        self._due_ns = self._rare_due_ns = 0

    def own_bytes(self) -> tuple[int, int, int]:
        """The resident set of the process, what of it is of files or shared, its address space."""
        if not self._is_open:
            self._open()
        text = self._read("statm", 64)
        if not text:
            return NULL_INT, NULL_INT, NULL_INT
        virtual, resident, mapped = (int(pages) * self._page for pages in text.split()[:3])
        return resident, mapped, virtual

    def figures(self, now_ns: int) -> HostFigures:
        """The rest; limit, kills and cache are not older than `RARE_NS`, others than `INTERVAL_NS`.

        The cache is read with what it is a part of where that is near its limit.

        Args:
            now_ns: The time by the monotonic clock.
        """
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + INTERVAL_NS
            if not self._is_open:
                self._open()
            is_due = now_ns >= self._rare_due_ns
            if is_due:
                self._rare_due_ns = now_ns + RARE_NS
                kills = parse_oom_kills(self._read("events", 512).decode())
                self._rare = (_or_null(parse_bytes(self._read("limit", 32))), _or_null(kills))
            used, limit = _or_null(parse_bytes(self._read("current", 32))), self._rare[0]
            if is_due or (limit != NULL_INT and used >= NEAR_LIMIT * limit):
                self._cache = _or_null(parse_file_cache(self._read("stat", 4096).decode()))
            self._newest = HostFigures(
                used, self._cache, *self._rare, *parse_meminfo(self._read("meminfo", 128))
            )
        return self._newest

    def expire(self) -> None:
        """Have the next figures be new ones."""
        self._due_ns = 0

    def close(self) -> None:
        """Close the files."""
        files, self._files = self._files, {}  # a thread may be about to read
        self._is_open = False
        for file in files.values():
            os.close(file)

    def _open(self) -> None:
        """Open what there is."""
        self._is_open = True
        paths = {"statm": "/proc/self/statm", "meminfo": "/proc/meminfo"}
        group = find_cgroup("self")
        if group is not None:
            paths.update(
                current=group.current, limit=group.limit, events=group.events, stat=group.stat
            )
        for name, path in paths.items():
            try:
                self._files[name] = os.open(path, _FLAGS)
            except OSError:  # this kernel has none
                pass_on()
                continue

    def _read(self, name: str, size: int) -> bytes:
        """The beginning of a file; nothing where it cannot be read."""
        try:
            return os.pread(self._files[name], size, 0)
        except (KeyError, OSError):
            pass_on()
            return b""


def parse_meminfo(text: bytes) -> tuple[int, int]:
    """What the machine has in use and what it has, by the first lines of ``/proc/meminfo``.

    Kernels older than 3.14 do not tell the third, which is what they could still give.
    """
    words = text.split(maxsplit=9)
    if len(words) < 9 or words[0] != b"MemTotal:":
        return NULL_INT, NULL_INT
    total = int(words[1]) << 10
    return (total - (int(words[7]) << 10) if words[6] == b"MemAvailable:" else NULL_INT), total


def _or_null(number: int | None) -> int:
    """A number as it stands in a row."""
    return NULL_INT if number is None else number
