"""Facts about a process, as the kernel tells them under /proc.

Rules of this file: reads only, never waits on the process, never needs its help. A process
that is gone gives None, not an error.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class ThreadFacts(NamedTuple):
    """One thread: its kernel number, its state letter, and its processor time in seconds."""

    thread_id: int
    state: str
    cpu_s: float


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process started; None when there is none.

    A zombie counts as ended.
    """
    fields = _stat_fields(f"/proc/{pid}/stat")
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether that very process still runs, rather than another with a recycled pid."""
    return start_time(pid) == started


def state(pid: int) -> str | None:
    """The state letter of the process's main thread."""
    fields = _stat_fields(f"/proc/{pid}/stat")
    return fields[0] if fields else None


def threads(pid: int) -> dict[int, ThreadFacts]:
    """Every thread of a process by its kernel number; empty when it is gone."""
    found = {}
    try:
        numbers = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return {}
    tick = os.sysconf("SC_CLK_TCK")
    for number in sorted(numbers):
        fields = _stat_fields(f"/proc/{pid}/task/{number}/stat")
        if fields is not None:
            cpu = (int(fields[11]) + int(fields[12])) / tick
            found[number] = ThreadFacts(thread_id=number, state=fields[0], cpu_s=cpu)
    return found


def command(pid: int) -> tuple[str, ...]:
    """The command line; empty when it is gone or hidden."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0"))


def owner(pid: int) -> int | None:
    """The user id of a process."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def is_python(pid: int) -> bool:
    """Whether the process runs a Python interpreter, by its executable and libraries."""
    try:
        if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
            return True
        return "libpython" in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError:
        return False


def boot_id() -> str:
    """What tells this boot of the machine from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def pid_namespace() -> int:
    """The inode of this process's pid namespace; 0 where the kernel does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _stat_fields(path: str) -> list[str] | None:
    """The fields of a stat file behind the command name, which may hold anything."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    return data[data.rfind(b")") + 2 :].decode("ascii", "replace").split()
