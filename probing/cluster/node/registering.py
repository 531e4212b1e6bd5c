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
from ..registration import AGAIN_S, Registration, register

Store = tuple[str, int, int]
"""Host, port and the attempt."""
_STORE_S = 10.0
_AGAIN_S = 60.0
"""How often a store is asked for a newer attempt: of a thousand machines, 17 a second ask it."""


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
        self._next_file = self._next_store = self._next_again = 0.0
        self._stores: dict[Store, tuple[set[Path], int]] = {}
        """Where it is registered: the processes of the jobs that it is for, and the attempt."""

    def look(self, folders: Iterable[ProcessFolder]) -> None:
        """Register where that has not been done, or is long ago.

        Args:
            folders: Those of the processes that run; their jobs' stores are written to.
        """
        now = time.monotonic()
        if self._job_dir and now >= self._next_file:
            self._next_file = now + AGAIN_S
            self._register_in_directory()
        if now >= self._next_store:
            self._next_store, is_due = now + _STORE_S, now >= self._next_again
            self._next_again = now + _AGAIN_S if is_due else self._next_again
            self._look_at_stores(folders, is_due=is_due)

    def close(self) -> None:
        """Take the file away; what is in a store goes with its job."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _look_at_stores(self, folders: Iterable[ProcessFolder], *, is_due: bool) -> None:
        """Register with each job: where all processes are others than before, it is another one.

        Args:
            is_due: Whether it is looked in the same ones, too: another machine may have come to a
                newer attempt.
        """
        found: dict[Store, set[Path]] = {}
        for folder in folders:
            if (store := store_of(folder.pid)) is not None:
                found.setdefault(store, set()).add(folder.path)
        before, self._stores = self._stores, {}
        for store, those in found.items():
            earlier, number = before.get(store, (set(), None))
            registered = None if earlier.isdisjoint(those) else number
            if registered is None or is_due:
                registered = self._registered_in(store, registered)
            if registered is not None:
                self._stores[store] = those, registered

    def _registered_in(self, store: Store, registered: int | None) -> int | None:
        """Register where it is not yet; the attempt in which it then is, None for in none."""
        host, port, attempt = store
        with contextlib.suppress(ProbingError):
            return register_in_store(
                host, port, attempt=attempt, listen=self._listen, registered=registered
            )
        return registered

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
