"""The sockets that the agent listens on, and who may connect to them.

Rules of this file: sockets are made and looked at; nobody waits here and nothing is read.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import socket
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import BadSetting, NoPermission
from ..rundir.folders import short_path
from ..settings import Settings

if TYPE_CHECKING:
    from .certificate import Certificate

_BACKLOG = 64
_LAST_PORT = 65535
_CREDENTIALS = struct.Struct("iII")


class TcpListener(NamedTuple):
    """A listening TCP socket.

    Attributes:
        address: ``host:port``, with ``https://`` before it where it is encrypted.
        certificate: What it shows then.
    """

    server: socket.socket
    address: str
    certificate: Certificate | None


def bind_unix(path: Path) -> socket.socket:
    """A listening unix socket at a path of any length, open to its owner only.

    Raises:
        OSError: It cannot be bound, or something else than a socket is there, which stays.
    """
    remove_socket(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as address:
        server.bind(address)
    os.chmod(path, 0o600)
    server.listen(_BACKLOG)
    return server


def remove_socket(path: Path) -> None:
    """Take away what this user's agent before left, and nothing else.

    Raises:
        FileExistsError: What is there is none of it.
    """
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.geteuid():
        raise FileExistsError(
            errno.EEXIST, "something that is no socket of ours is there", str(path)
        )
    path.unlink()


def bind_tcp(settings: Settings, local_rank: int) -> TcpListener:
    """A listening TCP socket as the settings ask for.

    Raises:
        NoPermission: The address is open to other machines, and neither is it encrypted nor was it
            allowed by name.
        BadSetting: The certificate cannot be read.
        OSError: The address cannot be bound, or there is no such port.
    """
    host, _, port_text = settings.listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port_text.isdecimal():
        raise OSError(f"PROBING_LISTEN={settings.listen} is not host:port")
    port = int(port_text) + local_rank if int(port_text) else 0
    if port > _LAST_PORT:  # it would be bound by its last 16 bits
        ranked = f", {port_text} plus LOCAL_RANK {local_rank}" if local_rank else ""
        raise OSError(f"there is no port {port}{ranked}: the last is {_LAST_PORT}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError:  # a name that can be none, as `a..b`
        raise OSError(f"PROBING_LISTEN={settings.listen}: the host name is not known") from None
    # By the number that will be bound: a name may begin with 127, and mean any machine.
    is_private = address[0] == "::1" or (
        family == socket.AF_INET and str(address[0]).startswith("127.")
    )
    certificate = _certificate(settings)
    if not is_private and certificate is None and not settings.insecure_plaintext:
        raise NoPermission(
            f"listening on {host}, which other machines reach, without encryption",
            help="Give it a certificate, PROBING_TLS_CERT and PROBING_TLS_KEY, or listen on"
            " 127.0.0.1; PROBING_INSECURE_PLAINTEXT=1 allows it as it is.",
        )
    server = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    shown = f"[{host}]" if ":" in host else host
    scheme = "https://" if certificate is not None else ""
    return TcpListener(server, f"{scheme}{shown}:{server.getsockname()[1]}", certificate)


def _certificate(settings: Settings) -> Certificate | None:
    """What the listener is to show; `ssl` is loaded only for one."""
    if settings.tls_key and not settings.tls_cert:
        raise BadSetting("PROBING_TLS_KEY", "it needs PROBING_TLS_CERT beside it")
    if not settings.tls_cert:
        return None
    from .certificate import load_certificate

    return load_certificate(settings)


def is_welcome(connection: socket.socket) -> bool:
    """Whether the process at the other end of a unix socket is of this user, or root's."""
    if connection.family != socket.AF_UNIX:
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return uid in (0, os.getuid())


def peer_of(connection: socket.socket) -> int | str:
    """Who is at the other end: a process of this machine by its number, else an address."""
    if connection.family == socket.AF_UNIX:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, _, _ = _CREDENTIALS.unpack(data)
        return int(pid)
    return str(connection.getpeername()[0])


def close_connections(servers: Sequence[socket.socket]) -> None:
    """Close each connection that came in by one of these listeners, in a forked child.

    Of the one that its parent was just taking, or closing, no Python object knows the descriptor:
    so they are looked for among all. Takes 2 to 3 ms per 1,000 descriptors.
    """
    places = [_place(server) for server in servers]
    own = {server.fileno() for server in servers}
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - own:
        with contextlib.suppress(OSError):  # no socket, or the folder that was listed
            if _place_of(fd) in places:
                os.close(fd)


def _place_of(fd: int) -> tuple[int, object]:
    """Where a descriptor is bound that some other object may own."""
    found = _socket.socket(fileno=fd)
    try:
        return _place(found)
    finally:
        found.detach()  # or it would be closed with this object


def _place(bound: _socket.socket) -> tuple[int, object]:
    """Where a socket is bound; a connection is where its listener is, perhaps by another host."""
    name = bound.getsockname()
    return bound.family, name[1] if bound.family in {socket.AF_INET, socket.AF_INET6} else name
