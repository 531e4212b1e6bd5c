"""Forks while the agent is in the middle of a connection, and prints what the child has of it.

``fork_connections.py MOMENT``: the fork comes right after the system call that takes a connection,
or before the one that closes it. It prints how many sockets of the agent it had before, and then
how many the child has.
"""

from __future__ import annotations

import _socket
import os
import socket
import sys
import threading
from typing import Any

from probing.agent import lifecycle
from probing.settings import Settings

PATIENCE_S = 10.0
"""How long the agent's thread waits for the fork; what keeps a fork back must not wait for that."""

at_it, has_forked = threading.Event(), threading.Event()


def wait_for_fork() -> None:
    """Have the main thread fork now, once."""
    if threading.current_thread() is not threading.main_thread() and not at_it.is_set():
        at_it.set()
        has_forked.wait(PATIENCE_S)


class Slow(socket.socket):
    """A socket between whose system calls and Python's knowing of them there is a fork."""

    def _accept(self) -> Any:
        taken = super()._accept()  # type: ignore[misc]
        wait_for_fork()
        return taken


def close_slowly(connection: socket.socket) -> None:
    """As the call in C does: the object forgets the descriptor, then that is closed."""
    fd = connection.detach()
    if fd >= 0:
        wait_for_fork()
        os.close(fd)


def bound() -> int:
    """How many sockets this process has that are bound where the agent listens, itself included."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            one = _socket.socket(fileno=int(name))
        except OSError:
            continue
        found += str(one.getsockname()).endswith("/sock")
        one.detach()
    return found


if __name__ == "__main__":
    if sys.argv[1] == "taking":
        socket.socket = Slow  # type: ignore[misc]
    agent = lifecycle.start(Settings.from_env(os.environ))
    if sys.argv[1] == "closing":
        socket.socket.close = close_slowly  # type: ignore[assignment]
    client = _socket.socket(socket.AF_UNIX)
    client.connect(str(agent.folder.socket))
    client.sendall(b"GET /v1/ping HTTP/1.1\r\n\r\n")
    assert at_it.wait(PATIENCE_S)
    before = bound()
    pid = os.fork()
    if pid == 0:
        print(before, bound(), flush=True)
        os._exit(0)
    has_forked.set()
    os.waitpid(pid, 0)
    assert client.recv(15) == b"HTTP/1.1 200 OK"
    os._exit(0)
