"""The connection of one HTTP request, and what goes wrong on it.

Rules of this file: loaded with the first request only: HTTP and TLS take as long to load as a short
command to run. Who is at the other end is judged by the number that was connected to, before a byte
is sent.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import (
    BadRequest,
    ConnectionLost,
    NotAnswering,
    NotProbing,
    ProbingError,
    Untrusted,
)
from ..messages import common as wire
from ..rundir.folders import short_path
from .address import Address
from .trust import context_for

_RETRY_S = 0.02
_PEER = struct.Struct("3i")
"""Process, user and group of the other side."""
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""What OpenSSL calls an answer that is not encrypted."""


@contextlib.contextmanager
def our_errors(address: Address, timeout_s: float) -> Iterator[None]:
    """The border: what sockets and HTTP raise, in our words."""
    try:
        yield
    except TimeoutError:
        raise NotAnswering(f"the agent at {address}", timeout_s) from None
    except (socket.gaierror, UnicodeError):  # the latter of a name that can be none, as `a..b`
        raise NotProbing(str(address), "the host name is not known") from None
    except ConnectionRefusedError:
        raise NotProbing(str(address), NotProbing.refused) from None
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(str(address), error.verify_message.rstrip(".")) from None
    except ssl.SSLError as error:
        why = f"TLS failed ({error.reason})"
        if error.reason in _NO_TLS:
            why = "what answers there does not speak TLS; it may be reached without, by http://"
        raise NotProbing(str(address), why) from None
    except (ConnectionError, http.client.IncompleteRead):
        is_plain = address.path is None and not address.tls
        raise ConnectionLost(str(address), may_want_tls=is_plain) from None
    except http.client.HTTPException:
        raise NotProbing(str(address), "what answers there does not speak HTTP") from None
    except OSError as error:
        raise NotProbing(str(address), error.strerror or str(error)) from None


def error_in(response: http.client.HTTPResponse, address: Address) -> ProbingError:
    """The error that an answer carries."""
    try:
        return wire.decode_error(response.read(1 << 20))
    except BadRequest:
        server = response.getheader("Server", "something without a name")
        return NotProbing(str(address), f"{server[:60]} answers there, with {response.status}")


def connection_to(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    """A connection that is not yet made."""
    if address.path is not None:
        return _UnixConnection(address.path, timeout_s)
    return _TcpConnection(address, timeout_s)


class _TcpConnection(http.client.HTTPConnection):
    """HTTP over TCP; nothing is sent before who is there is one that may have it."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        super().__init__(address.host, address.port, timeout=timeout_s)
        self._address = address

    def connect(self) -> None:
        """Connect, judge who is there, and compare the certificate with those that are pinned."""
        super().connect()
        self._address.check_peer(self.sock.getpeername()[0])
        if self._address.tls:
            trust = self._address.trust
            self.sock = context_for(trust).wrap_socket(self.sock, server_hostname=self.host)
            trust.check(str(self._address), self.sock.getpeercert(binary_form=True))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket, by a short name where its path is too long for an address."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        end = time.monotonic() + (self.timeout or 0)
        with short_path(self._path) as path:
            while True:
                try:
                    self.sock.connect(path)
                    return self._require_owner()
                except BlockingIOError:  # the agent's queue of callers is full at the moment
                    if time.monotonic() > end:
                        raise TimeoutError from None
                    time.sleep(_RETRY_S)

    def _require_owner(self) -> None:
        """See that who listens is the one whose socket it is: a link may lead to another's.

        Raises:
            NotProbing: It is somebody else.
        """
        told = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, uid, _ = _PEER.unpack(told)
        if uid != os.lstat(self._path).st_uid:
            raise NotProbing(str(self._path), f"it is user {uid} who listens there")
