"""A real server that speaks as S3 does, and a line to it that can be cut.

Whoever asks goes by the line, which is a port of this process; the server is a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import IO

from tests.harness.targets import DEADLINE_S

_RUNNING = re.compile(rb"Running on http://[\d.]+:(\d+)")
_PIECE = 1 << 16


class Line:
    """Passes on what is said to a server.

    Attributes:
        is_down: Whether whoever comes is turned away.
        cut: Requests whose body is broken off in its middle: how they begin, as a pattern, and how
            many.
        requests: The first line of each request.
        signers: Who has signed requests; None is nobody.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.is_down = False
        self.cut: tuple[bytes, int] = (b"", 0)
        self.requests: list[str] = []
        self.signers: set[str | None] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take nobody any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.is_down:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._port))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        """Pass on what comes, until either side ends or the line is cut."""
        is_cut = False
        with contextlib.suppress(OSError):
            while data := one.recv(_PIECE):
                if self.is_down:
                    break
                if re.match(rb"[A-Z]+ /", data):
                    self.requests.append(data.partition(b"\r\n")[0].decode())
                    signed = re.search(rb"Credential=([^/]+)/", data)
                    self.signers.add(signed and signed[1].decode())
                head, _, body = data.partition(b"\r\n\r\n")
                begins, left = self.cut
                if left and re.match(begins, data):
                    self.cut, is_cut = (begins, left - 1), True
                    other.sendall(head + b"\r\n\r\n")
                    data = body
                if is_cut and data:
                    other.sendall(data[: len(data) // 2])
                    break
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def s3_server() -> Iterator[Line]:
    """A server, and a line to it."""
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert server.stderr is not None
    try:
        line = Line(_port_of(server.stderr))
        try:
            yield line
        finally:
            line.close()
    finally:
        server.kill()
        server.wait(DEADLINE_S)
        server.stderr.close()


def _port_of(stderr: IO[bytes]) -> int:
    """Where a server listens, as it says; what it says later is thrown away."""
    for text in stderr:
        if found := _RUNNING.search(text):
            threading.Thread(target=_read_on, args=(stderr,), daemon=True).start()
            return int(found[1])
    raise AssertionError("the server has ended")


def _read_on(stderr: IO[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while os.read(stderr.fileno(), _PIECE):
            pass


def make_bucket(line: Line, name: str) -> None:
    """Have a server make a bucket."""
    url = f"http://127.0.0.1:{line.port}/{name}"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
        assert answer.status == 200
