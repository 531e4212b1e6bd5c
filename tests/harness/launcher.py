"""What torchrun is to its ranks, for a program of the tests, and quicker: it forks them.

    python tests/harness/launcher.py RANKS LOGS PROGRAM ARGUMENTS

Rules of this file: every rank is told what torchrun would tell it and is a child of this process,
which has imported torch; the store in which they meet is this process's. Once a rank has failed the
others are ended, as torchrun does, and the exit code is 1. The ranks' output goes to LOGS.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed  # noqa: F401 - its C part is not there without it
from torch._C import _distributed_c10d as c10d

from tests.harness import warm_server

_GRACE_S = float(os.environ.get("LAUNCHER_GRACE_S", "30"))
"""How long a rank may take to end when it is asked to; torchrun's own, if not given."""


def _rank_env(rank: int, ranks: int, port: int) -> dict[str, str]:
    """The environment of a rank."""
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _fork_rank(rank: int, ranks: int, port: int, logs: Path, argv: list[str]) -> int:
    """Make a rank; in it this does not return."""
    pid = os.fork()
    if pid:
        return pid
    log = os.open(logs / f"{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    env = _rank_env(rank, ranks, port)
    raise _Rank(warm_server.become(argv, env, Path.cwd()))


class _Rank(BaseException):
    """Unwinds the launcher in a process that is a rank now."""

    def __init__(self, program: Callable[[], object]) -> None:
        self.program = program


def _watch(pids: set[int]) -> int:
    """Wait for all ranks; returns the exit code."""
    code, end = 0, 0.0
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG if end else 0)
        pids.discard(pid)
        if pid and os.waitstatus_to_exitcode(status):
            code = 1
        if code and not end:
            end = time.monotonic() + _GRACE_S
            _signal(pids, signal.SIGTERM)
        elif end and time.monotonic() > end:
            _signal(pids, signal.SIGKILL)
        if end and not pid:
            time.sleep(0.01)
    return code


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def launch(ranks: int, logs: Path, argv: list[str]) -> int:
    """Run a program on some ranks; returns the exit code of the launcher."""
    logs.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("localhost", 0)) as listening:
        port = listening.getsockname()[1]
        # The ranks are made before the store, which has threads.
        pids = {_fork_rank(rank, ranks, port, logs, argv) for rank in range(ranks)}
        descriptor = listening.detach()
    store = c10d.TCPStore(
        "localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    code = _watch(pids)
    del store
    return code


if __name__ == "__main__":
    try:
        exit_code = launch(int(sys.argv[1]), Path(sys.argv[2]), [sys.executable, *sys.argv[3:]])
    except _Rank as rank:
        program = rank.program
    else:
        sys.exit(exit_code)
    program()
