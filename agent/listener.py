"""Waits for the first question; until then the agent is one sleeping thread.

Rules of this file: runs in the agent's own daemon thread, which blocks all signals so that the
host's handlers run where they always did. Sockets are bound before the thread starts, so that
a failure is known at once. A ping is answered here, with bytes made beforehand; anything else
loads the HTTP server, which then goes on in this same thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from ..card import Pong
from ..codec import encode
from .safe_points import AGENT_THREAD_PREFIX
from .sockets import is_welcome
from .state import Agent

_PEEK_S = 1.0
_LIVES = 3
_PING = b"GET /v1/ping "


class Serving(Protocol):
    """What a server must offer to go on in the listener's thread."""

    def run(self, sockets: list[socket.socket], first: socket.socket) -> None:
        """Serve until stopped, beginning with a connection that is already accepted."""

    def stop(self) -> None:
        """End `run`, from any thread."""

    def abandon(self) -> None:
        """Runs in a forked child: let go of the parent's connections."""


class Listener:
    """The agent's thread and its sockets."""

    def __init__(
        self, agent: Agent, sockets: list[socket.socket], make_server: Callable[[], Serving]
    ) -> None:
        self._agent = agent
        self._make_server = make_server
        self._sockets = sockets
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._server: Serving | None = None
        self._is_stopped = False
        self._pong = _pong()
        self._thread = threading.Thread(
            target=self._run, name=f"{AGENT_THREAD_PREFIX}agent", daemon=True
        )

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the sockets; returns within 2 s."""
        self._is_stopped = True
        os.write(self._wake_writer, b"x")
        if self._server is not None:
            self._server.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(2.0)
        self._close()

    def abandon(self) -> None:
        """Runs in a forked child: close the parent's sockets, and nothing more."""
        if self._server is not None:
            self._server.abandon()
        self._close()

    def _close(self) -> None:
        """Close every descriptor, once."""
        for server in self._sockets:
            server.close()
        for fd in (self._wake_reader, self._wake_writer):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._wake_reader = self._wake_writer = -1

    def _run(self) -> None:
        """The thread. An exception that gets here must not reach the host's stderr."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for _ in range(_LIVES):
            try:
                self._serve()
                return
            except Exception as error:  # noqa: BLE001 - never harm the host
                self._agent.problems.append(f"the server failed: {type(error).__name__}: {error}")

    def _serve(self) -> None:
        """Prune old records, wait, and serve from the first real question on."""
        self._agent.prune()
        first = self._wait()
        if first is not None:
            self._server = self._make_server()
            if self._is_stopped:  # while it was being loaded
                self._server.stop()
            self._server.run(self._sockets, first)

    def _wait(self) -> socket.socket | None:
        """Answer pings until somebody asks more; None when it is time to stop."""
        poll = select.poll()
        for fd in (*(server.fileno() for server in self._sockets), self._wake_reader):
            poll.register(fd, select.POLLIN)
        by_fd = {server.fileno(): server for server in self._sockets}
        while True:
            for fd, _ in poll.poll():
                if fd not in by_fd:
                    return None
                connection = self._accept(by_fd[fd])
                if connection is not None:
                    return connection

    def _accept(self, server: socket.socket) -> socket.socket | None:
        """The next connection, unless it is not welcome or was only a ping."""
        try:
            connection, _ = server.accept()
        except OSError:
            return None
        try:
            if not is_welcome(connection):
                connection.close()
                return None
            if connection.family != socket.AF_UNIX:
                return connection
            connection.settimeout(_PEEK_S)
            if connection.recv(len(_PING), socket.MSG_PEEK) != _PING:
                connection.settimeout(0)
                return connection
            self._agent.refresh_card()
            connection.recv(65536)
            connection.sendall(self._pong)
        except OSError:
            pass
        connection.close()
        return None


def _pong() -> bytes:
    """The whole answer to a ping."""
    body = encode(Pong(pid=os.getpid()))
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
