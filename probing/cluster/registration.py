"""Addresses left in a directory that all machines of a job see: ``PROBING_JOB_DIR``.

Rules of this file: one small JSON file for each server, put in place whole; loaded by an agent only
where the directory is set. Nothing in it is secret: a token is never written there. But who is
named there is asked, so what others could have written is not believed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import BadRequest
from ..linux import process
from ..linux.foreign_files import open_file
from ..messages.codec import decode, encode
from ..messages.frozen import dataclass
from ..rundir.folders import put_private

STALE_S = 24 * 3600.0
"""After how long without a word from it a server of another machine is taken for gone."""
AGAIN_S = 600.0
"""How often a server says again that it is there."""
_SUFFIX = ".probing.json"
_MOST_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One server.

    Attributes:
        kind: ``node`` or ``agent``.
        listen: ``host:port``, as other machines reach it, with ``https://`` before it where that is
            encrypted.
        start_time: Clock ticks after boot at which its process started.
        job: What it serves; None for a node server, which serves every job of its machine.
        registered_ns: When it last said that it is there.
    """

    kind: str
    listen: str
    host: str
    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int
    job: str | None = None
    attempt: int = 0
    registered_ns: int = 0


class Registered(NamedTuple):
    """What a directory lists.

    Attributes:
        entries: The servers that may still be there.
        notes: What was not believed, and why.
    """

    entries: list[Registration]
    notes: list[str]


def register(directory: Path, registration: Registration) -> Path:
    """Leave word of a server.

    Raises:
        OSError: The directory cannot be written to.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{registration.host}-{registration.pid}-{registration.start_time}{_SUFFIX}"
    path = directory / name
    put_private(path, encode(registration))
    return path


def registrations(directory: Path, *, clock: Callable[[], float] = time.time) -> Registered:
    """The servers that may still be there, those of ended processes left out.

    One of this machine is gone when its process is; one of another, when it has said nothing for
    long.
    """
    found = Registered([], [])
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return found
    try:
        why = _distrust(os.fstat(fd), may_be_sticky=True)
        if why:
            found.notes.append(f"PROBING_JOB_DIR={directory} is left out: {why}; `chmod 700` it")
            return found
        for name in sorted(name for name in os.listdir(fd) if name.endswith(_SUFFIX)):
            _add(found, directory / name, _read(fd, name), clock())
    finally:
        os.close(fd)
    return found


def _add(found: Registered, path: Path, entry: Registration | str | None, now_s: float) -> None:
    """Keep what a file says, or why it is not believed."""
    if isinstance(entry, str):
        found.notes.append(f"{path} is left out: {entry}")
    elif entry is not None and not is_stale(entry, now_s=now_s):
        found.entries.append(entry)


def is_here(entry: Registration) -> bool:
    """Whether a server is of this machine, and of this container."""
    there = (entry.boot_id, entry.pid_namespace)
    return there == (process.boot_id(), process.pid_namespace())


def is_stale(entry: Registration, *, now_s: float) -> bool:
    """Whether nobody can be there any more."""
    if is_here(entry):
        return not process.is_alive(entry.pid, entry.start_time)
    return now_s - entry.registered_ns * 1e-9 > STALE_S


def as_reached(listen: str) -> str:
    """An address as other machines reach it: the machine's name, where it listens everywhere."""
    scheme, separator, rest = listen.rpartition("://")
    host, _, port = rest.rpartition(":")
    open_to_all = host in {"0.0.0.0", "[::]"}  # noqa: S104 - compared, not bound
    return f"{scheme}{separator}{socket.gethostname()}:{port}" if open_to_all else listen


def _read(directory: int, name: str) -> Registration | str | None:
    """What a file says; None where it is none of ours, or why it is not believed."""
    try:
        fd = open_file(f"/proc/thread-self/fd/{directory}/{name}")
    except OSError:
        return "it cannot be read, or is no file"
    with open(fd, "rb", buffering=0) as file:
        why = _distrust(os.fstat(fd))
        if why:
            return why
        with contextlib.suppress(OSError, BadRequest):
            return decode(Registration, file.read(_MOST_BYTES))
    return None


def _distrust(info: os.stat_result, *, may_be_sticky: bool = False) -> str:
    """Why what is there could be somebody else's word; empty where it could not.

    Args:
        may_be_sticky: Whether others may write where each can change only what is his own.
    """
    if info.st_uid not in {0, os.geteuid()}:
        return f"it belongs to another user (uid {info.st_uid})"
    is_open = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if is_open and not (may_be_sticky and info.st_mode & stat.S_ISVTX):
        return "others can write to it"
    return ""
