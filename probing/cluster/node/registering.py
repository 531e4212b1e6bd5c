"""Leaves the address of a node server where commands look for it.

Rules of this file: runs in the thread that looks after the node server. A store or directory that
cannot be written to is tried again later, and is never an error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from ...errors import ProbingError
from ...linux import process
from ...rundir.folders import ProcessFolder
from ..job.providers.job_store import register_in_store
from ..launchers import place_in
from ..registration import Registration, register

_DIRECTORY_S = 600.0
_STORE_S = 10.0


class Registrar:
    """Registers one node server.

    Args:
        listen: Its address, as other machines reach it.
        job_dir: The directory that all machines see; empty for none.
    """

    def __init__(self, listen: str, job_dir: str) -> None:
        self._listen = listen
        self._job_dir = job_dir
        self._path: Path | None = None
        self._next_file = self._next_store = 0.0
        self._stores: set[tuple[str, int, int]] = set()

    def look(self, folders: Iterable[ProcessFolder]) -> None:
        """Register where that has not been done, or is long ago.

        Args:
            folders: Those of the processes that run; their jobs' stores are written to.
        """
        now = time.monotonic()
        if self._job_dir and now >= self._next_file:
            self._next_file = now + _DIRECTORY_S
            self._register_in_directory()
        if now >= self._next_store:
            self._next_store = now + _STORE_S
            for store in {found for folder in folders if (found := store_of(folder.pid))}:
                self._register_in(store)

    def close(self) -> None:
        """Take the file away; what is in a store goes with its job."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _register_in(self, store: tuple[str, int, int]) -> None:
        if store in self._stores:
            return
        host, port, attempt = store
        with contextlib.suppress(ProbingError):
            register_in_store(host, port, attempt=attempt, listen=self._listen)
            self._stores.add(store)

    def _register_in_directory(self) -> None:
        pid = os.getpid()
        entry = Registration(
            kind="node",
            listen=self._listen,
            host=socket.gethostname(),
            pid=pid,
            start_time=process.start_time(pid) or 0,
            boot_id=process.boot_id(),
            pid_namespace=process.pid_namespace(),
            registered_ns=time.time_ns(),
        )
        with contextlib.suppress(OSError):
            self._path = register(Path(self._job_dir), entry)


def store_of(pid: int) -> tuple[str, int, int] | None:
    """Host and port of the store that the launcher of a process keeps, and its attempt.

    Only torchrun's own store: one that a rank would make is none of ours to connect to early.
    """
    env = process.environment(pid)
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or not host or not port.isdecimal():
        return None
    return host, int(port), place_in(env).attempt
