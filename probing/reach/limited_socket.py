"""A socket whose other side may be slow on purpose: a limit on all that is waited for, together.

Rules of this file: knows nothing of what is sent. A limit on each wait is none: who sends a byte
before each is over is waited for without an end.
"""

from __future__ import annotations

import contextlib
import io
import math
import socket
import threading
import time
from typing import Any


class Patience:
    """How long an answer is waited for: longer the more of it has come, if it comes fast enough.

    Its head is small, and is waited for no longer however much comes.

    Args:
        limit_s: How long it may take that is small.
        bytes_per_s: How fast one must come that takes longer.
    """

    def __init__(self, limit_s: float, *, bytes_per_s: float = math.inf) -> None:
        self._limit_s = limit_s
        self._bytes_per_s = bytes_per_s
        self._is_behind_head = False
        self.begin()

    def begin(self) -> None:
        """Begin to wait, now."""
        self._until = time.monotonic() + self._limit_s

    def end_head(self) -> None:
        """What comes from now on may be long."""
        self._is_behind_head = True

    def left_s(self) -> float:
        """How long may still be waited.

        Raises:
            TimeoutError: It is over.
        """
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def came(self, count: int) -> None:
        """So many bytes have come."""
        if self._is_behind_head:
            self._until += count / self._bytes_per_s


class Leave:
    """Has a thread leave its request, which it waits for, when another says so."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def take(self, connected: socket.socket) -> None:
        """Have what the request goes over.

        Raises:
            ConnectionAbortedError: It is over by now.
        """
        with self._lock:
            if self._is_over:
                raise ConnectionAbortedError
            self._socket = connected

    def now(self) -> None:
        """End the connection; the other side sees it, and who waits for the answer does, too."""
        with self._lock:
            self._is_over = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it has ended
                    # Not TLS's own, which belongs to the thread that reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class LimitedSocket:
    """A connected socket, as far as HTTP needs one, on which nothing is waited for too long."""

    def __init__(self, connected: socket.socket, patience: Patience) -> None:
        self._socket = connected
        self._patience = patience

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.settimeout(self._patience.left_s())
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What comes, as a file."""
        assert mode == "rb"
        return io.BufferedReader(_Incoming(self._socket, self._patience))

    def close(self) -> None:
        """Let it go, once what comes is let go too."""
        self._socket.close()


class _Incoming(io.RawIOBase):
    """What comes from a socket."""

    def __init__(self, connected: socket.socket, patience: Patience) -> None:
        self._socket = connected
        self._file = connected.makefile("rb", buffering=0)  # which keeps the socket open
        self._patience = patience

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`; waits only as long as there is patience."""
        self._socket.settimeout(self._patience.left_s())
        count = self._file.readinto(buffer) or 0
        self._patience.came(count)
        return count

    def close(self) -> None:
        """See `io.RawIOBase`."""
        self._file.close()
        super().close()
