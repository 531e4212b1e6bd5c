"""One HTTP request to an agent, over its unix socket or TCP.

Rules of this file: the client's sockets, and nothing that knows what a route means. Who is at the
other end is judged by the number that was connected to, before a byte is sent. Who answers may mean
harm: what comes has a limit in time and in bytes, whatever the answer says of itself. What goes
wrong on the way becomes one of our errors here; an error body from the other side is raised as it
was sent.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..errors import (
    BadRequest,
    ConnectionLost,
    NotAnswering,
    NotProbing,
    ProbingError,
    Untrusted,
    UsageError,
)
from ..messages import common as wire, rank_paths
from ..messages.limits import ANSWER_BYTES, LEAST_BYTES_PER_S, LEAST_LOCAL_BYTES_PER_S
from ..messages.routes import ROUTES_BY_NAME
from ..rundir.folders import short_path
from .limited_socket import LimitedSocket, Patience
from .trust import NOTHING_SAID, Trust, context_for

_RETRY_S = 0.02
_PIECE = 1 << 20
_PEER = struct.Struct("3i")
"""Process, user and group of the other side."""
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""What OpenSSL calls an answer that is not encrypted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an agent listens: a unix socket's path, or host and port.

    Attributes:
        tls: Whether the connection is encrypted.
        token: Sent with every TCP request.
        trust: Whose certificate is believed.
        key: Which process of a node server's is meant, by the name of its run folder.
    """

    path: Path | None = None
    host: str = ""
    port: int = 0
    tls: bool = False
    token: str | None = None
    key: str = ""
    trust: Trust = NOTHING_SAID

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def path_of(self, path: str) -> str:
        """Where a route is to be found there."""
        return rank_paths.path_of(self.key, path) if self.key else path

    def check_peer(self, number: str) -> None:
        """Judge who is at the other end.

        Raises:
            Unproven: A token would be sent to another machine unencrypted.
        """
        if self.token and not self.tls:
            self.trust.check_plain(str(self), number)


def ask(
    address: Address,
    route: str,
    *,
    body: Any = None,
    timeout_s: float,
    flags: tuple[str, ...] = (),
    times: Mapping[str, float] | None = None,
    most_bytes: int = ANSWER_BYTES,
    **names: str,
) -> bytes:
    """Send a request and return the whole answer.

    Args:
        route: The name of a route of `probing.messages.routes`.
        body: An object of `probing.messages.common` for a POST.
        timeout_s: How long it may take in all; one that has many bytes, a little longer.
        flags: Query parameters to be set to ``true``.
        times: Query parameters in seconds.
        most_bytes: What the answer may have.
        **names: What stands in braces in the route's path.

    Raises:
        NotProbing: Nobody, or something else, listens there, or says far too much.
        Untrusted: Who listens there is not who it should be; it was sent nothing.
        Unproven: Nothing proves who listens there; it was sent nothing.
        NotAnswering: The answer did not come in time.
        ConnectionLost: It broke off.
        RemoteError: The agent answered with an error.
    """
    with open_answer(
        address, route, body=body, timeout_s=timeout_s, flags=flags, times=times, **names
    ) as answer:
        return answer.read(most_bytes)


def path_to(
    route: str,
    *,
    flags: tuple[str, ...] = (),
    times: Mapping[str, float] | None = None,
    **names: str,
) -> str:
    """Where an agent has the answer to a question, with its parameters; arguments as of `ask`."""
    parameters = [f"{flag}=true" for flag in flags]
    parameters += [f"{name}={seconds:g}" for name, seconds in (times or {}).items()]
    path = ROUTES_BY_NAME[route].path.format(**names)
    return f"{path}?{'&'.join(parameters)}" if parameters else path


@contextlib.contextmanager
def open_answer(
    address: Address,
    route: str,
    *,
    body: Any = None,
    timeout_s: float,
    flags: tuple[str, ...] = (),
    times: Mapping[str, float] | None = None,
    **names: str,
) -> Iterator[Answering]:
    """As `ask`, but hand the answer over to be read piece by piece."""
    record = ROUTES_BY_NAME[route]
    connection = _connection(address, timeout_s)
    headers = {"Content-Type": wire.JSON_TYPE}
    if address.token and address.path is None:
        headers["Authorization"] = f"Bearer {_checked(address.token)}"
    content = wire.encode(body) if body is not None else None
    path = address.path_of(path_to(route, flags=flags, times=times, **names))
    try:
        with _our_errors(address, timeout_s):
            is_local = address.path is not None
            least = LEAST_LOCAL_BYTES_PER_S if is_local else LEAST_BYTES_PER_S
            patience = Patience(timeout_s, bytes_per_s=least)
            connection.connect()
            connection.sock = cast("socket.socket", LimitedSocket(connection.sock, patience))
            connection.request(record.method, path, content, headers)
            # Closed by itself: it holds the socket where the other side ends the connection.
            with connection.getresponse() as response:
                if response.status != 200:
                    raise _error_in(response, address)
                patience.end_head()
                yield Answering(address, response, patience)
    finally:
        connection.close()


class Answering:
    """An answer that is on its way.

    Attributes:
        response: What of it has come, without a limit on its bytes; closed with the connection.
    """

    def __init__(
        self, address: Address, response: http.client.HTTPResponse, patience: Patience
    ) -> None:
        self._address = address
        self.response = response
        self._patience = patience

    def read(self, most_bytes: int) -> bytes:
        """All of it.

        Raises:
            NotProbing: It has more bytes than that.
        """
        data = bytearray()
        # By pieces: as many bytes as an answer says that it has would be made room for at once.
        while piece := self.response.read(_PIECE):
            data += piece
            if len(data) > most_bytes:
                raise self._endless(most_bytes)
        if self.response.length:
            raise ConnectionLost(str(self._address))
        return bytes(data)

    def read_line(self, most_bytes: int = ANSWER_BYTES) -> bytes:
        """The next line, for which it is waited as long as for an answer; nothing at the end.

        Raises:
            NotProbing: It has more bytes than that.
        """
        self._patience.begin()
        line = self.response.readline(most_bytes)
        if len(line) == most_bytes:
            raise self._endless(most_bytes)
        return line

    def _endless(self, most_bytes: int) -> NotProbing:
        why = f"what answers there sends more than {most_bytes:,} bytes"
        return NotProbing(str(self._address), why)


@contextlib.contextmanager
def _our_errors(address: Address, timeout_s: float) -> Iterator[None]:
    """The border: what sockets and HTTP raise, in our words."""
    try:
        yield
    except TimeoutError:
        raise NotAnswering(f"the agent at {address}", timeout_s) from None
    except socket.gaierror:
        raise NotProbing(str(address), "the host name is not known") from None
    except ConnectionRefusedError:
        raise NotProbing(str(address), "the connection was refused") from None
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(str(address), error.verify_message.rstrip(".")) from None
    except ssl.SSLError as error:
        why = f"TLS failed ({error.reason})"
        if error.reason in _NO_TLS:
            why = "what answers there does not speak TLS; it may be reached without, by http://"
        raise NotProbing(str(address), why) from None
    except (ConnectionError, http.client.IncompleteRead):
        raise ConnectionLost(str(address)) from None
    except http.client.HTTPException:
        raise NotProbing(str(address), "what answers there does not speak HTTP") from None
    except OSError as error:
        raise NotProbing(str(address), error.strerror or str(error)) from None


def _error_in(response: http.client.HTTPResponse, address: Address) -> ProbingError:
    """The error that an answer carries."""
    try:
        return wire.decode_error(response.read(1 << 20))
    except BadRequest:
        server = response.getheader("Server", "something without a name")
        return NotProbing(str(address), f"{server[:60]} answers there, with {response.status}")


def _connection(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    """A connection that is not yet made."""
    if address.path is not None:
        return _UnixConnection(address.path, timeout_s)
    return _TcpConnection(address, timeout_s)


def _checked(token: str) -> str:
    """A token that can be sent.

    Raises:
        UsageError: It cannot; what it is, is not told.
    """
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(
            "the token is not one: it holds something else than printable ASCII characters.",
            help="Look at the file of --token-file, or at PROBING_TOKEN.",
        )
    return token


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
