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
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..card import Pong
from ..codec import encode
from ..errors import NoPermission
from ..rundir import short_path
from ..settings import Settings
from .safe_points import AGENT_THREAD_PREFIX

if TYPE_CHECKING:
    from .lifecycle import Agent
    from .server import Server

_BACKLOG = 64
_PEEK_S = 1.0
_LIVES = 3
_PING = b"GET /v1/ping "
_CREDENTIALS = struct.Struct("iII")
_LOOPBACK = ("127.", "::1", "localhost")


def bind_unix(path: Path) -> socket.socket:
    """A listening unix socket at a path of any length, open to its owner only.

    Raises:
        OSError: It cannot be bound.
    """
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as address:
        server.bind(address)
    os.chmod(path, 0o600)
    server.listen(_BACKLOG)
    return server


def bind_tcp(settings: Settings, local_rank: int) -> tuple[socket.socket, str]:
    """A listening TCP socket as the settings ask for, and its address as ``host:port``.

    Raises:
        NoPermission: The address is open to other machines, and that was not allowed by name.
        OSError: The address cannot be bound.
    """
    host, _, port_text = settings.listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port_text.isdecimal():
        raise OSError(f"PROBING_LISTEN={settings.listen} is not host:port")
    port = int(port_text) + local_rank if int(port_text) else 0
    if not host.startswith(_LOOPBACK) and not settings.insecure_plaintext:
        raise NoPermission(
            f"listening on {host}, which other machines reach, without encryption",
            help="Set PROBING_INSECURE_PLAINTEXT=1 to allow it, or listen on 127.0.0.1.",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return server, f"{shown}:{server.getsockname()[1]}"


def is_welcome(connection: socket.socket) -> bool:
    """Whether the process at the other end of a unix socket is of this user, or root's."""
    if connection.family != socket.AF_UNIX:
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return uid in (0, os.getuid())


class Listener:
    """The agent's thread and its sockets."""

    def __init__(self, agent: Agent, sockets: list[socket.socket]) -> None:
        self._agent = agent
        self._sockets = sockets
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._server: Server | None = None
        self._pong = _pong()
        self._thread = threading.Thread(
            target=self._run, name=f"{AGENT_THREAD_PREFIX}agent", daemon=True
        )

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the sockets; returns within 2 s."""
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
            from .server import Server  # aiohttp is loaded only when somebody asks

            self._server = Server(self._agent)
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
