"""One HTTP request to an agent, over its unix socket or TCP.

Rules of this file: the client's sockets, and nothing that knows what a route means. Every wait
has a limit. Who is at the other end is judged by the number that was connected to, before a byte
is sent. What goes wrong on the way becomes one of our errors here; an error body from the other
side is raised as it was sent.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import rank_paths, wire
from .errors import (
    BadRequest,
    ConnectionLost,
    NotAnswering,
    NotProbing,
    ProbingError,
    Untrusted,
    UsageError,
)
from .routes import ROUTES_BY_NAME
from .rundir import short_path
from .trust import NOTHING_SAID, Trust, context_for, is_loopback

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_RETRY_S = 0.02
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""What OpenSSL calls an answer that is not encrypted."""

Held = dict[tuple[Any, ...], bytes]
"""Answers that are here already, by what `asked_as` makes of their questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an agent listens: a unix socket's path, or host and port.

    Attributes:
        tls: Whether the connection is encrypted.
        token: Sent with every TCP request.
        trust: Whose certificate is believed.
        is_far: Whether it must be another machine's.
        key: Which process of a node server's is meant, by the name of its run folder.
        held: What need not be asked for any more.
    """

    path: Path | None = None
    host: str = ""
    port: int = 0
    tls: bool = False
    token: str | None = None
    key: str = ""
    trust: Trust = NOTHING_SAID
    is_far: bool = False
    held: Held = field(default_factory=dict, compare=False, repr=False)

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
            NotProbing: It is this machine, which was not meant.
            Unproven: A token would be sent to another machine unencrypted.
        """
        if self.is_far and is_loopback(number):
            raise NotProbing(str(self), "it is this machine's own")
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
    **names: str,
) -> bytes:
    """Send a request and return the whole answer.

    Args:
        route: The name of a route of `probing.routes`.
        body: An object of `probing.wire` for a POST.
        timeout_s: The limit of the whole.
        flags: Query parameters to be set to ``true``.
        times: Query parameters in seconds.
        **names: What stands in braces in the route's path.

    Raises:
        NotProbing: Nobody, or something else, listens there.
        Untrusted: Who listens there is not who it should be; it was sent nothing.
        Unproven: Nothing proves who listens there; it was sent nothing.
        NotAnswering: The answer did not come in time.
        ConnectionLost: It broke off.
        RemoteError: The agent answered with an error.
    """
    if address.held:
        held = address.held.get(asked_as(route, body=body, flags=flags, times=times, **names))
        if held is not None:
            return held
    until = time.monotonic() + timeout_s
    with open_answer(
        address,
        route,
        body=body,
        timeout_s=timeout_s,
        flags=flags,
        times=times,
        until=until,
        **names,
    ) as response:
        return response.read()


def asked_as(
    route: str,
    *,
    body: Any = None,
    flags: tuple[str, ...] = (),
    times: Mapping[str, float] | None = None,
    **names: str,
) -> tuple[Any, ...]:
    """What is equal for equal questions; arguments as of `ask`."""
    return route, body, flags, tuple(sorted((times or {}).items())), tuple(sorted(names.items()))


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
    until: float | None = None,
    **names: str,
) -> Iterator[http.client.HTTPResponse]:
    """As `ask`, but hand the answer over as a file to be read piece by piece.

    Args:
        timeout_s: The limit of each wait: for the connection, and for every piece.
        until: When all of it is to be there, by the monotonic clock.
    """
    record = ROUTES_BY_NAME[route]
    connection = _connection(address, timeout_s)
    headers = {"Content-Type": wire.JSON_TYPE}
    if address.token and address.path is None:
        headers["Authorization"] = f"Bearer {_checked(address.token)}"
    content = wire.encode(body) if body is not None else None
    path = address.path_of(path_to(route, flags=flags, times=times, **names))
    try:
        with _our_errors(address, timeout_s):
            connection.connect()
            if until is not None:
                connection.sock = _TimedSocket(connection.sock, until)
            connection.request(record.method, path, content, headers)
            # Closed by itself: it holds the socket where the other side ends the connection.
            with connection.getresponse() as response:
                if response.status != 200:
                    raise _error_in(response, address)
                yield response
    finally:
        connection.close()


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


class _TimedSocket:
    """A connected socket, all of whose waits together end at one moment."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket, self._until = connected, until

    def sendall(self, data: bytes) -> None:
        """See `socket.socket.sendall`."""
        self._limit()
        self._socket.sendall(data)

    def makefile(self, mode: Literal["rb"]) -> io.BufferedReader:
        """See `socket.socket.makefile`."""
        return io.BufferedReader(_TimedFile(self._socket.makefile(mode, buffering=0), self._limit))

    def close(self) -> None:
        """See `socket.socket.close`."""
        self._socket.close()

    def _limit(self) -> None:
        """Have the next wait end in time.

        Raises:
            TimeoutError: It is late already.
        """
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)


class _TimedFile(io.RawIOBase):
    """What a timed socket receives."""

    def __init__(self, file: socket.SocketIO, limit: Callable[[], None]) -> None:
        super().__init__()
        self._file, self._limit = file, limit

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """See `io.RawIOBase`."""
        self._limit()
        return self._file.readinto(buffer)

    def close(self) -> None:
        """See `io.RawIOBase`."""
        self._file.close()
        super().close()


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
                    return self.sock.connect(path)
                except BlockingIOError:  # the agent's queue of callers is full at the moment
                    if time.monotonic() > end:
                        raise TimeoutError from None
                    time.sleep(_RETRY_S)
