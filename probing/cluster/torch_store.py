"""The few words of torch's TCPStore that finding a job takes, spoken without torch.

Rules of this file: one connection, a limit on all its waits, nothing that waits for a key. The
server is the job's own rendezvous: what is written there is under ``/probing/`` and small. What the
server says that is not understood ends the connection, and is an `Unreachable`.
"""

from __future__ import annotations

import socket
import struct

from ..errors import Unreachable
from ..reach.limited_socket import Patience

_MAGIC = 0x3C85F7CE
_VALIDATE, _SET, _GET, _ADD, _CHECK, _PING = 0, 1, 3, 4, 5, 13
_READY = 0
_MOST_BYTES = 1 << 16
_LENGTH = struct.Struct("<Q")


class TorchStore:
    """A connection to a TCPStore; use as a context manager.

    Args:
        timeout_s: The limit of all waits together.

    Raises:
        Unreachable: Nobody, or something else, listens there.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        self._where = f"{host}:{port}"
        self._patience = Patience(timeout_s)
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except UnicodeError:  # a name that can be none, as `a..b`
            raise self._lost("the host name is not known") from None
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from None
        nonce = 0x0B0E
        self._send(struct.pack("<BIBI", _VALIDATE, _MAGIC, _PING, nonce))
        if struct.unpack("<I", self._receive(4))[0] != nonce:
            self._socket.close()
            raise self._lost("what answers there is no TCPStore of torch's")

    def __enter__(self) -> TorchStore:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def set(self, key: str, value: bytes) -> None:
        """Write a key; the server does not confirm it."""
        self._send(struct.pack("<B", _SET) + _text(key) + _LENGTH.pack(len(value)) + value)

    def add(self, key: str, number: int) -> int:
        """Add to a counter; returns what it has come to."""
        self._send(struct.pack("<B", _ADD) + _text(key) + struct.pack("<q", number))
        total: int = struct.unpack("<q", self._receive(8))[0]
        return total

    def get(self, key: str) -> bytes | None:
        """The value of a key; None where there is none: a store would wait for it."""
        self._send(struct.pack("<BQ", _CHECK, 1) + _text(key))
        if self._receive(1)[0] != _READY:
            return None
        self._send(struct.pack("<B", _GET) + _text(key))
        size = _LENGTH.unpack(self._receive(_LENGTH.size))[0]
        if size > _MOST_BYTES:
            raise self._lost("it answers with more than was ever written")
        return self._receive(size)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._patience.left_s())
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error.strerror or "it did not take the request in time") from None

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                self._socket.settimeout(self._patience.left_s())
                part = self._socket.recv(size - len(data))
            except OSError as error:
                raise self._lost(error.strerror or "it did not answer in time") from None
            if not part:
                raise self._lost("it closed the connection")
            data += part
        return data

    def _lost(self, why: str) -> Unreachable:
        return Unreachable(
            f"the store of the job at {self._where} cannot be asked: {why}.",
            help="MASTER_ADDR and MASTER_PORT of a rank say where the store of its job is.",
        )


def _text(key: str) -> bytes:
    data = f"/{key}".encode()  # torch puts the slash before every key
    return _LENGTH.pack(len(data)) + data
