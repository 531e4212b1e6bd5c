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

Store = tuple[str, int, int]
"""Host, port and the attempt."""
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
        self._stores: dict[Store, set[Path]] = {}
        """Where it is registered, and the processes of the jobs that it is for."""

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
            self._look_at_stores(folders)

    def close(self) -> None:
        """Take the file away; what is in a store goes with its job."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _look_at_stores(self, folders: Iterable[ProcessFolder]) -> None:
        """Register with each job: where all processes are others than before, it is another one."""
        found: dict[Store, set[Path]] = {}
        for folder in folders:
            if (store := store_of(folder.pid)) is not None:
                found.setdefault(store, set()).add(folder.path)
        before, self._stores = self._stores, {}
        for store, those in found.items():
            if not before.get(store, set()).isdisjoint(those) or self._is_registered_in(store):
                self._stores[store] = those

    def _is_registered_in(self, store: Store) -> bool:
        """Register, and tell whether that could be done."""
        host, port, attempt = store
        with contextlib.suppress(ProbingError):
            register_in_store(host, port, attempt=attempt, listen=self._listen)
            return True
        return False

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


def store_of(pid: int) -> Store | None:
    """Host and port of the store that the launcher of a process keeps, and its attempt.

    Only torchrun's own store: one that a rank would make is none of ours to connect to early.
    """
    env = process.environment(pid)
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or not host or not port.isdecimal():
        return None
    return host, int(port), place_in(env).attempt
