"""The HTTP server of the agent.

Rules of this file: runs in the agent's thread on an event loop of its own; the one place that
imports aiohttp's server. Who may ask is settled here, before a request is looked at: on the
unix socket by the peer's user id as the connection is accepted, over TCP by token and Host.
A page in a browser is refused by its Origin. What the routes do is in `handlers`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import weakref
from collections.abc import Awaitable, Callable

from aiohttp import web

from .. import wire
from ..errors import (
    BadOrigin,
    BadRequest,
    BadToken,
    Busy,
    InternalError,
    NoSuchRoute,
    ProbingError,
    RequestTooLarge,
)
from ..routes import ROUTES
from .handlers import Handlers
from .sockets import is_welcome
from .state import Agent

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_KEEP_ALIVE_S = 5.0
_RETRY_S = 0.1


class Server:
    """Serves the routes on sockets that are already bound."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._handlers = Handlers(agent)
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_exception_handler(lambda *_: None)  # the host's log is not ours
        self._stopping = asyncio.Event()
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._in_hand = 0

    def run(self, sockets: list[socket.socket], first: socket.socket) -> None:
        """Serve until stopped, beginning with a connection that is already accepted."""
        try:
            self._loop.run_until_complete(self._serve(sockets, first))
        finally:
            self._loop.close()

    def stop(self) -> None:
        """End `run`, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:  # the loop is closed: it has ended already
            return

    def abandon(self) -> None:
        """Runs in a forked child: close the parent's connections without a word."""
        for connection in list(self._connections):
            connection.close()

    async def _serve(self, sockets: list[socket.socket], first: socket.socket) -> None:
        """Accept connections on every socket until told to stop."""
        app = web.Application(client_max_size=self._agent.settings.max_body_bytes)
        for route in ROUTES:
            handler = self._guarded(getattr(self._handlers, route.name))
            app.router.add_route(route.method, route.path, handler)
        app.router.add_route("*", "/{path:.*}", self._guarded(_refuse_route))
        runner = web.AppRunner(
            app,
            handle_signals=False,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            logger=_silent_logger(),
            shutdown_timeout=0.5,
        )
        await runner.setup()
        tasks = [asyncio.ensure_future(self._accept(runner, server)) for server in sockets]
        await self._connect(runner, first)
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        self._handlers.close()
        await runner.cleanup()

    async def _accept(self, runner: web.AppRunner, server: socket.socket) -> None:
        """Take connections from one listening socket, as many as the settings allow."""
        server.settimeout(0)
        while True:
            try:
                connection, _ = await self._loop.sock_accept(server)
            except OSError:  # out of descriptors, or a peer gone already: the host needs air
                await asyncio.sleep(_RETRY_S)
                continue
            if self._open_connections() >= self._agent.settings.max_connections:
                connection.close()
            else:
                await self._connect(runner, connection)

    def _open_connections(self) -> int:
        """How many connections are open; closed ones may not have been forgotten yet."""
        return sum(connection.fileno() >= 0 for connection in list(self._connections))

    async def _connect(self, runner: web.AppRunner, connection: socket.socket) -> None:
        """Hand an accepted connection to aiohttp, if its peer is welcome."""
        try:
            if runner.server is None or not is_welcome(connection):
                connection.close()
                return
            connection.settimeout(0)
            self._connections.add(connection)
            await self._loop.connect_accepted_socket(runner.server, connection)
        except OSError:
            connection.close()

    def _guarded(self, handler: Handler) -> Handler:
        """A handler that asks who is there first, and whose errors are answers.

        Not a middleware of aiohttp, which remembers its applications in a cache of the module: all
        that we are would stay in the process when we leave.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, handler)

        return answer

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every error into the one error body."""
        try:
            return await self._admit(request, handler)
        except ProbingError as error:
            failure = error
        except web.HTTPRequestEntityTooLarge:
            failure = RequestTooLarge("the request", self._agent.settings.max_body_bytes)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the rim: the client gets a sentence
            failure = InternalError(f"{type(error).__name__}: {error}")
        return web.Response(
            body=wire.encode_error(failure), status=failure.status, content_type=wire.JSON_TYPE
        )

    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what may not ask, and what is too much at once."""
        origin = request.headers.get("Origin")
        if origin is not None:
            raise BadOrigin("Origin", origin)
        if _is_tcp(request):
            self._check_host(request)
            self._check_token(request)
        if request.method == "POST" and request.content_type != wire.JSON_TYPE:
            raise BadRequest(f"a POST must be {wire.JSON_TYPE}")
        limit = self._agent.settings.max_requests
        if self._in_hand >= limit:
            raise Busy("requests", limit)
        self._in_hand += 1
        try:
            return await handler(request)
        finally:
            self._in_hand -= 1

    def _check_host(self, request: web.Request) -> None:
        """Compare the Host header with the names this listener is known by.

        A page on a host name that was made to point here is told apart by nothing else.
        """
        address = self._agent.listen or ""
        name, _, port = address.rpartition(":")
        allowed = {f"{name}:{port}", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"}
        host = request.headers.get("Host", "")
        is_open = name in {"0.0.0.0", "[::]"}  # noqa: S104 - then any name of this machine may be meant
        known = host in allowed or (is_open and host.rpartition(":")[2] == port)
        if not known and host not in self._agent.settings.hosts.split(","):
            raise BadOrigin("Host", host)

    def _check_token(self, request: web.Request) -> None:
        """Compare the token in constant time."""
        given = request.headers.get("Authorization", "")
        if not given:
            raise BadToken(missing=True)
        wanted = f"Bearer {self._agent.token}"
        if not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            raise BadToken(missing=False)


async def _refuse_route(request: web.Request) -> web.StreamResponse:
    """What is asked is none of the routes."""
    raise NoSuchRoute(request.method, request.path)


def _is_tcp(request: web.Request) -> bool:
    """Whether a request came over TCP; one whose connection is gone counts as such."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    return connection is None or connection.family != socket.AF_UNIX


def _silent_logger() -> logging.Logger:
    """A logger that reaches none of the host's handlers, and is not in the host's list."""
    logger = logging.Logger("probing.agent")  # noqa: LOG001 - see above
    logger.addHandler(logging.NullHandler())
    return logger
