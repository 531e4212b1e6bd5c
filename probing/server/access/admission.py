"""Which requests are answered: who may ask what, how often, and how many are in hand at once.

Rules of this file: runs on the event loop of the server, for every request, before its handler. A
page in a browser is refused by its Origin; the rest `auth` decides. Whatever is refused, and
whatever a handler raises, is answered by the one error body. Who may not ask takes nothing from
those who may: not even a token of the bucket of an address that they share.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiohttp import web

from ...errors import (
    BadOrigin,
    BadRequest,
    Busy,
    InternalError,
    ProbingError,
    RequestTimedOut,
    RequestTooLarge,
    TooManyRequests,
)
from ...messages.routes import Access, Route
from ...settings import Settings
from ..connections import Connection, Connections
from ..protocol import refusal
from .auth import check_access, check_host, check_writing
from .rates import Rates

if TYPE_CHECKING:
    from ..certificate import Certificate

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_REFUSAL_S = 0.1
"""How long a sender that asks too often waits to be told so: to ask on and on costs little."""
_STRANGERS = "strangers"
"""Whose bucket the requests of all are from who may not ask: no address is called so."""


class Asked(NamedTuple):
    """What a route does, for who decides whether it may be asked; see `Route`."""

    name: str
    access: Access
    writes: Callable[[bytes], bool] | None

    @classmethod
    def of(cls, route: Route) -> Asked:
        """What a route says of itself."""
        return cls(route.name, route.access, route.writes)


OTHER = Asked("it", "read", None)


class Served(Protocol):
    """What a server speaks for.

    Attributes:
        settings: As they are in force now.
        token: What TCP requests must carry.
        read_token: What those may carry that only read.
        listen: Where it listens for TCP, if it does, see `probing.messages.card.Card`.
        certificate: What it shows there, if that is encrypted.
    """

    settings: Settings
    token: str
    read_token: str
    listen: str | None
    certificate: Certificate | None


class Admission:
    """Stands before the handlers of one server."""

    def __init__(self, agent: Served, connections: Connections) -> None:
        self._agent = agent
        self._connections = connections
        self._rates = Rates(time.monotonic)
        self._in_hand = 0

    def guard(self, handler: Handler, asked: Asked) -> Handler:
        """A handler that asks who is there first, and whose errors are answers.

        Not a middleware of aiohttp, which remembers its applications in a cache of the module: all
        that we are would stay in the process when we leave.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, handler, asked)

        return answer

    async def _answer(
        self, request: web.Request, handler: Handler, asked: Asked
    ) -> web.StreamResponse:
        """Turn every error into the one error body."""
        try:
            await self._check_in_time(request, asked)
            return await self._admit(request, handler, asked)
        except ProbingError as error:
            failure = error
        except web.HTTPRequestEntityTooLarge:
            limit = self._agent.settings.max_body_bytes
            failure = RequestTooLarge("the request", limit, "PROBING_MAX_BODY_BYTES")
        except asyncio.CancelledError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the rim: the
            # client gets a sentence. The last two come of users' objects that were looked at, and
            # would end the thread.
            failure = InternalError(f"{type(error).__name__}: {error}")
        if request.writer.output_size:  # an answer that breaks off is cut, never ended politely
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError
        return refusal(failure)

    async def _check_in_time(self, request: web.Request, asked: Asked) -> None:
        """Refuse what may not ask; where there is too much of that, the refusal waits."""
        try:
            self._check(request, asked)
        except ProbingError:
            if not self._rates.take(_STRANGERS, self._agent.settings.max_requests_per_s):
                await asyncio.sleep(_REFUSAL_S)
            raise

    def _check(self, request: web.Request, asked: Asked) -> None:
        """Refuse what may not ask."""
        origin = request.headers.get("Origin")
        if origin is not None:
            raise BadOrigin(origin)
        if _is_tcp(request):
            transport, headers = request.transport, request.headers
            reached = transport.get_extra_info("sockname") if transport else None
            check_host(headers.getall("Host", []), self._agent, reached)
            given = headers.getall("Authorization", [])
            check_access(given, self._agent, asked.name, asked.access)

    async def _admit(
        self, request: web.Request, handler: Handler, asked: Asked
    ) -> web.StreamResponse:
        """Refuse what is too much at once."""
        connection = self._connections.of(request.protocol)
        if connection is None:  # it is gone
            raise asyncio.CancelledError
        connection.writer = request.writer
        await self._check_rate(connection)
        connection.is_reading = True
        try:
            await _ask_for_body(request)
            await self._read_body(request)
        finally:
            connection.is_reading = False
        if asked.writes is not None and _is_tcp(request):
            check_writing(await request.read(), asked.writes, self._agent)
        if request.transport is None:  # it has gone; before Python 3.12 `wait_for` may not tell
            raise asyncio.CancelledError
        limit = self._agent.settings.max_requests
        if self._in_hand >= limit:
            raise Busy("requests", limit)
        self._in_hand += 1
        connection.is_at_work = True
        try:
            return await handler(request)
        finally:
            self._in_hand -= 1
            connection.is_at_work = False
            connection.since = asyncio.get_running_loop().time()

    async def _check_rate(self, connection: Connection) -> None:
        """Refuse a sender that asks more often than it may."""
        per_s = self._agent.settings.max_requests_per_s
        if not self._rates.take(connection.peer, per_s):
            await asyncio.sleep(_REFUSAL_S)
            raise TooManyRequests(per_s)

    async def _read_body(self, request: web.Request) -> None:
        """Have the whole body there, before the request takes a place among those in hand."""
        limit_s = self._agent.settings.body_timeout_s
        try:
            await asyncio.wait_for(request.read(), limit_s)
        except asyncio.TimeoutError:
            raise RequestTimedOut(limit_s) from None
        except web.RequestPayloadError:
            raise BadRequest("the body is not what its headers say") from None


async def _ask_for_body(request: web.Request) -> None:
    """Ask for the body of who waits for that; who expects anything else is served all the same."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # it is no part of the answer


def _is_tcp(request: web.Request) -> bool:
    """Whether a request came over TCP; one whose connection is gone counts as such."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    return connection is None or connection.family != socket.AF_UNIX
