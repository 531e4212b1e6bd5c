"""The HTTP server of an agent, and of a node server.

Rules of this file: runs in the agent's thread on an event loop of its own; with `admission`,
`bodies` and the handlers what imports aiohttp's server. Who may ask is settled before a request is
looked at: on the unix socket by the peer's user id as the connection is accepted, over TCP by
`admission`. What the routes do is handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..errors import BadRequest, NoSuchRoute, WrongMethod
from ..messages import common as wire
from ..messages.routes import Route
from ..safety.guard import OWN_LOOP
from .access.admission import OTHER, Admission, Asked, Handler, Served
from .connections import Connection, Connections
from .headers import silence
from .protocol import PeerProtocol
from .sockets import is_welcome

if TYPE_CHECKING:
    from .certificate import Certificate

Endpoint = tuple[Route, Handler]
"""A route, and what answers there."""

_HANDSHAKE_S = 5.0
_LINGER_S = 1.0
"""How long the rest of a refused body is read, so that the refusal arrives."""
_RETRY_S = 0.1
_END_S = 1.0
"""How long what is served may take to end, where the serving fails."""
_END_TRIES, _LAST_ROUNDS = 3, 3


class Server:
    """Serves routes on sockets that are already bound.

    Args:
        endpoints: What is answered.
        close: Called as the serving ends.
        chore: Called again and again, after as many seconds as it has returned, or after `wake`.
        admission: What stands before the handlers.
    """

    def __init__(
        self,
        agent: Served,
        endpoints: Sequence[Endpoint],
        close: Callable[[], None],
        *,
        chore: Callable[[], float | None] | None = None,
        admission: type[Admission] = Admission,
    ) -> None:
        self._agent = agent
        self._endpoints = endpoints
        self._close_handlers = close
        self._chore = chore
        self._loop = asyncio.SelectorEventLoop()
        # In development mode a loop prints what takes it long, into the output of the program.
        self._loop.set_debug(False)
        setattr(self._loop, OWN_LOOP, True)
        self._loop.set_exception_handler(lambda *_: None)  # the host's log is not ours
        self._stopping, self._is_woken = asyncio.Event(), asyncio.Event()
        self._connections = Connections(self._loop, lambda: agent.settings)
        self._admission = admission(agent, self._connections)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._logger = _silent_logger()

    def run(self, sockets: list[socket.socket], waiting: Sequence[socket.socket] = ()) -> None:
        """Serve until stopped, beginning with connections that are already accepted, if any."""
        try:
            self._loop.run_until_complete(self._serve(sockets, waiting))
        except BaseException:
            self._close_handlers()
            raise
        finally:
            self._end_tasks()
            self._loop.close()
            self.abandon()  # whoever still waits for an answer learns that none will come

    def stop(self) -> None:
        """End `run`, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:  # the loop is closed: it has ended already
            return

    def wake(self) -> None:
        """Do the chore now, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._is_woken.set)

    def _end_tasks(self) -> None:
        """Have what still runs come to its end while there is a loop to end it on.

        A coroutine or a transport that is freed after its loop says so on the host's stderr.
        """
        for _ in range(_END_TRIES):
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            try:
                if tasks:
                    self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
                self._connections.cut()  # those that no task has closed: idle, or killed midway
                for _ in range(_LAST_ROUNDS):  # what was called soon, and what that calls
                    self._loop.run_until_complete(asyncio.sleep(0))
            except BaseException:  # noqa: BLE001, S112 - what ended the serving may come again
                continue
            return

    def abandon(self) -> None:
        """Close the connections without a word; in a forked child they are the parent's."""
        self._connections.close()

    async def _serve(self, sockets: list[socket.socket], waiting: Sequence[socket.socket]) -> None:
        """Accept connections on every socket until told to stop."""
        app = web.Application(client_max_size=self._agent.settings.max_body_bytes)
        for route, handler in self._endpoints:
            answering = _taking_json(handler) if route.method == "POST" else handler
            guarded = self._admission.guard(answering, Asked.of(route))
            app.router.add_route(route.method, route.path, guarded, expect_handler=_expect)
        for path in dict.fromkeys(route.path for route, _ in self._endpoints):
            allowed = ", ".join(route.method for route, _ in self._endpoints if route.path == path)
            wrong = self._admission.guard(_refusing_method(allowed), OTHER)
            app.router.add_route("*", path, wrong, expect_handler=_expect)
        other = self._admission.guard(_refuse_route, OTHER)
        app.router.add_route("*", "/{path:(?s:.*)}", other, expect_handler=_expect)
        runner = web.AppRunner(
            app, handle_signals=False, handler_cancellation=True, shutdown_timeout=0.5
        )
        await runner.setup()
        assert runner.server is not None  # it is made by the line before
        silence(runner.server)
        find: Any = runner.server.request_handler
        leading: Any = _finding(find, other)
        runner.server.request_handler = leading
        tasks = [asyncio.ensure_future(self._accept(runner, server)) for server in sockets]
        if self._chore is not None:
            tasks.append(asyncio.ensure_future(_again_and_again(self._chore, self._is_woken)))
        for connection in waiting:
            await self._connect(runner, connection)
        await self._stopping.wait()
        for task in (*tasks, *self._handshakes):
            task.cancel()
        self._close_handlers()
        await runner.cleanup()

    async def _accept(self, runner: web.AppRunner, server: socket.socket) -> None:
        """Take connections from one listening socket, as many as the settings allow."""
        server.settimeout(0)
        while True:
            try:
                await self._wait_readable(server)
                connection = self._connections.accept(server)
            except BlockingIOError:  # who wanted to connect has gone
                continue
            except OSError:  # out of descriptors, or a peer gone already: the host needs air
                await asyncio.sleep(_RETRY_S)
                continue
            if self._connections.is_room_for(connection):
                await self._connect(runner, connection)
            else:
                connection.close()

    async def _wait_readable(self, server: socket.socket) -> None:
        """Wait until somebody connects."""
        is_readable = asyncio.Event()
        self._loop.add_reader(server, is_readable.set)
        try:
            await is_readable.wait()
        finally:
            self._loop.remove_reader(server)

    async def _connect(self, runner: web.AppRunner, connection: socket.socket) -> None:
        """Hand an accepted connection to aiohttp, if its peer is welcome."""
        try:
            if runner.server is None or not is_welcome(connection):
                connection.close()
                return
            connection.settimeout(0)
            held = Connection(connection, self._loop.time())

            def protocol() -> asyncio.Protocol:
                assert runner.server is not None  # see above
                made = PeerProtocol(
                    runner.server,
                    loop=self._loop,
                    access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to have none
                    keepalive_timeout=self._agent.settings.header_timeout_s,
                    lingering_time=_LINGER_S,
                    logger=self._logger,
                )
                self._connections.add(made, held)
                return made

            certificate = self._agent.certificate
            if certificate is None or connection.family == socket.AF_UNIX:
                held.transport, _ = await self._loop.connect_accepted_socket(protocol, connection)
                return
            # Whoever is slow at it holds up nobody else.
            task = asyncio.ensure_future(self._shake_hands(protocol, held, certificate))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
        except OSError:
            connection.close()

    async def _shake_hands(
        self, protocol: Callable[[], asyncio.Protocol], held: Connection, certificate: Certificate
    ) -> None:
        """Hand an encrypted connection to aiohttp; close it where the peers do not agree."""
        try:
            held.transport, _ = await self._loop.connect_accepted_socket(
                protocol,
                held.socket,
                ssl=certificate.context,
                ssl_handshake_timeout=_HANDSHAKE_S,
            )
        except OSError:
            held.socket.close()


async def _again_and_again(chore: Callable[[], float | None], is_woken: asyncio.Event) -> None:
    """Do something beside the requests, which never fails them."""
    while True:
        is_woken.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(is_woken.wait(), chore())


async def _expect(request: web.Request) -> None:
    """Say nothing yet to who expects something: it is not known who asks.

    aiohttp's own asks for the body, or refuses in words that it cannot always encode.
    """


def _finding(find: Handler, nowhere: Handler) -> Handler:
    """What finds the route of a request; what has no path at all is led to `nowhere`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await find(request)
        except web.HTTPException:  # of aiohttp's own
            return await nowhere(request)

    return answer


def _taking_json(handler: Handler) -> Handler:
    """A handler of JSON alone, which a page in a browser cannot send without asking first."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.content_type != wire.JSON_TYPE:
            raise BadRequest(f"a POST must be {wire.JSON_TYPE}")
        return await handler(request)

    return answer


def _refusing_method(allowed: str) -> Handler:
    """What answers where a path is asked for by a method that it has not."""

    async def refuse(request: web.Request) -> web.StreamResponse:
        raise WrongMethod(request.method, request.path, allowed)

    return refuse


async def _refuse_route(request: web.Request) -> web.StreamResponse:
    """What is asked is none of the routes."""
    raise NoSuchRoute(request.method, request.path)


def _silent_logger() -> logging.Logger:
    """A logger that reaches none of the host's handlers, and is not in the host's list."""
    logger = logging.Logger("probing.agent")  # noqa: LOG001 - see above
    logger.addHandler(logging.NullHandler())
    return logger
