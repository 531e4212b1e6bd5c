"""One HTTP request to an agent, over its unix socket or TCP.

Rules of this file: the client's requests, and nothing that knows what a route means. Who answers
may mean harm: what comes has a limit in time and in bytes, whatever the answer says of itself. What
goes wrong on the way becomes one of our errors here; an error body from the other side is raised as
it was sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConnectionLost, NotProbing, UsageError
from ..messages import common as wire
from ..messages.limits import ANSWER_BYTES, LEAST_BYTES_PER_S, LEAST_LOCAL_BYTES_PER_S
from .address import Address

if TYPE_CHECKING:
    import http.client
    import socket

    from ..messages.routes import Route
    from .limited_socket import Leave, Patience

_PIECE = 1 << 20


def ask(
    address: Address,
    route: str,
    *,
    body: Any = None,
    timeout_s: float,
    grace_s: float = 0.0,
    flags: tuple[str, ...] = (),
    times: Mapping[str, float] | None = None,
    most_bytes: int = ANSWER_BYTES,
    leave: Leave | None = None,
    **names: str,
) -> bytes:
    """Send a request and return the whole answer.

    Args:
        route: The name of a route of `probing.messages.routes`.
        body: An object of `probing.messages.common` for a POST.
        timeout_s: How long it may take in all; one that has many bytes, a little longer.
        grace_s: What it may take beyond that, where the other side keeps the limit itself.
        flags: Query parameters to be set to ``true``.
        times: Query parameters in seconds.
        most_bytes: What the answer may have.
        leave: By which another thread may end it.
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
        address,
        route,
        body=body,
        timeout_s=timeout_s,
        grace_s=grace_s,
        flags=flags,
        times=times,
        leave=leave,
        **names,
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
    path = _route(route).path.format(**names)
    return f"{path}?{'&'.join(parameters)}" if parameters else path


@contextlib.contextmanager
def open_answer(
    address: Address,
    route: str,
    *,
    body: Any = None,
    timeout_s: float,
    grace_s: float = 0.0,
    flags: tuple[str, ...] = (),
    times: Mapping[str, float] | None = None,
    leave: Leave | None = None,
    **names: str,
) -> Iterator[Answering]:
    """As `ask`, but hand the answer over to be read piece by piece."""
    from .connection import connection_to, error_in, our_errors
    from .limited_socket import LimitedSocket, Patience

    record = _route(route)
    connection = connection_to(address, timeout_s + grace_s)
    headers = {"Content-Type": wire.JSON_TYPE}
    if address.token and address.path is None:
        headers["Authorization"] = f"Bearer {_checked(address.token)}"
    content = wire.encode_request(body) if body is not None else None
    path = address.path_of(path_to(route, flags=flags, times=times, **names))
    try:
        with our_errors(address, timeout_s):
            is_local = address.path is not None
            least = LEAST_LOCAL_BYTES_PER_S if is_local else LEAST_BYTES_PER_S
            patience = Patience(timeout_s + grace_s, bytes_per_s=least)
            connection.connect()
            if leave is not None:
                leave.take(connection.sock)
            connection.sock = cast("socket.socket", LimitedSocket(connection.sock, patience))
            connection.request(record.method, path, content, headers)
            # Closed by itself: it holds the socket where the other side ends the connection.
            with connection.getresponse() as response:
                if response.status != 200:
                    raise error_in(response, address)
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


def _route(name: str) -> Route:
    """A route by its name; all of their bodies are declared with the first."""
    from ..messages.routes import ROUTES_BY_NAME

    return ROUTES_BY_NAME[name]
