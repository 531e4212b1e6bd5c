"""The sockets that the agent listens on, and who may connect to them.

Rules of this file: sockets are made and looked at; nobody waits here and nothing is read.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from ..errors import NoPermission
from ..rundir import short_path
from ..settings import Settings

_BACKLOG = 64
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
