"""By which numbers a process is known, here and in its own pid namespace; its folder's name.

Rules of this file: the one place where a folder is matched with the process that it belongs to.
Reads /proc and asks the kernel whose a lock is; takes none. A number of another namespace means
nothing here, and two containers have the same ones, so that the namespace is part of the name.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

from ..linux import process
from ..linux.foreign_files import open_file

_NAME = re.compile(r"(\d{1,10})-(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)
_LOCK = struct.Struct("hhqqi0q")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""


FIRST = 0xEFFFFFFC
"""The inode of the pid namespace that the machine was started with; the kernel fixes it."""


class OwnNumber(NamedTuple):
    """What a process is known by in its own pid namespace.

    Attributes:
        started: When it started, in clock ticks after boot.
        namespace: The inode of that namespace; 0 where it is not told.
    """

    number: int
    started: int
    namespace: int


def own_number(pid: int, started: int) -> OwnNumber:
    """What a process of this pid here is known by in its own pid namespace.

    Args:
        started: When it started; one that has ended is taken for one of this namespace.
    """
    if not process.is_alive(pid, started):
        return OwnNumber(pid, started, process.pid_namespace())
    numbers = process.status(pid).get("NSpid", "").split() or [str(pid)]
    return OwnNumber(int(numbers[-1]), started, process.pid_namespace(pid))


def folder_name(own: OwnNumber) -> str:
    """What the folder of a process is called."""
    plain = f"{own.number}-{own.started}"
    return plain if own.namespace in (0, FIRST) else f"{plain}-{own.namespace}"


def read_name(name: str) -> OwnNumber | None:
    """What a folder's name tells of its process; None where it is none."""
    match = _NAME.fullmatch(name)
    return OwnNumber(*(int(part or 0) for part in match.groups())) if match is not None else None


def number_here(own: OwnNumber, locked: Path) -> int:
    """The pid here of a process whose number is one of its own pid namespace.

    The number itself where it is one of this namespace, or the process has ended or cannot be seen.

    Args:
        locked: The file that it keeps locked as long as it lives.
    """
    # To close one's own file would give its lock back.
    may_be_ours = own.namespace in (0, process.pid_namespace())
    if may_be_ours and (own.number == os.getpid() or process.is_alive(own.number, own.started)):
        return own.number
    pid = _holder(locked)
    if pid is None or not process.is_alive(pid, own.started):
        return own.number
    found = own_number(pid, own.started)
    is_in_it = found.namespace == own.namespace or 0 in (found.namespace, own.namespace)
    return pid if is_in_it and found.number == own.number else own.number


def _holder(path: Path) -> int | None:
    """The process here that keeps a lock on a file; None where none that can be seen does."""
    try:
        fd = open_file(path)
    except OSError:
        return None
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:  # a disk without locks
        return None
    finally:
        os.close(fd)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None
