"""Addresses left in a directory that all machines of a job see: ``PROBING_JOB_DIR``.

Rules of this file: one small JSON file for each server, put in place whole; loaded by an agent only
where the directory is set. Nothing in it is secret: a token is never written there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import process
from .codec import decode, encode
from .errors import BadRequest
from .foreign_files import read_file

STALE_S = 24 * 3600.0
"""After how long without a word from it a server of another machine is taken for gone."""
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


def register(directory: Path, registration: Registration) -> Path:
    """Leave word of a server.

    Raises:
        OSError: The directory cannot be written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{registration.host}-{registration.pid}-{registration.start_time}{_SUFFIX}"
    path = directory / name
    new = directory / f".{name}.new"
    new.write_bytes(encode(registration))
    os.replace(new, path)
    return path


def registrations(directory: Path, *, clock: Callable[[], float] = time.time) -> list[Registration]:
    """The servers that may still be there, those of ended processes left out.

    One of this machine is gone when its process is; one of another, when it has said nothing for
    long.
    """
    found = []
    for path in sorted(directory.glob(f"*{_SUFFIX}")) if directory.is_dir() else ():
        entry = _read(path)
        if entry is not None and not is_stale(entry, now_s=clock()):
            found.append(entry)
    return found


def is_stale(entry: Registration, *, now_s: float) -> bool:
    """Whether nobody can be there any more."""
    here = (entry.boot_id, entry.pid_namespace) == (process.boot_id(), process.pid_namespace())
    if here:
        return not process.is_alive(entry.pid, entry.start_time)
    return now_s - entry.registered_ns * 1e-9 > STALE_S


def as_reached(listen: str) -> str:
    """An address as other machines reach it: the machine's name, where it listens everywhere."""
    scheme, separator, rest = listen.rpartition("://")
    host, _, port = rest.rpartition(":")
    open_to_all = host in {"0.0.0.0", "[::]"}  # noqa: S104 - compared, not bound
    return f"{scheme}{separator}{socket.gethostname()}:{port}" if open_to_all else listen


def _read(path: Path) -> Registration | None:
    """What a file says; None where it is none of ours."""
    with contextlib.suppress(OSError, BadRequest):
        return decode(Registration, read_file(path, _MOST_BYTES))
    return None
