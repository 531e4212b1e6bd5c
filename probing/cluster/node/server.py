"""The node server as a whole: its place in the run directory, its sockets, its life.

Rules of this file: one for each run directory, by a locked file. The HTTP server, with the rules of
who may ask, is the agents' own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from ..._version import VERSION
from ...errors import MissingLibrary
from ...linux import process
from ...messages import common as wire
from ...messages.openapi import openapi
from ...messages.routes import NODE_ROUTES, RANK_ROUTES, ROUTES, ROUTES_BY_NAME
from ...rundir.folders import ProcessFolder, RunDirectory, write_private
from ...rundir.node_card import (
    NodeCard,
    findings_path,
    forget_node,
    lock_path,
    read_token_path,
    token_path,
    write_node,
)
from ...safety.guard import try_each
from ...server.access.tokens import Tokens
from ...server.bodies import json_answer
from ...server.certificate import Certificate
from ...server.parameters import flag
from ...server.server import Endpoint, Server
from ...server.sockets import bind_tcp
from ...settings import Settings
from ..registration import as_reached
from .figures import Figures
from .ranks import Ranks
from .registering import Registrar
from .roster import Roster
from .stalls import StallWatch
from .workers import Unions, Workers

if TYPE_CHECKING:
    from .metrics import Metrics
    from .otel.sending import Sender
    from .otel.wanted import Wanted

_LOOK_S = 1.0
_PRUNE_S = 3600.0
_END_S = 5.0
_MOST_TOLD = 16
"""Faults of looking that are told, each once."""


class NodeServer:
    """Answers for every process of a run directory.

    Args:
        tell: Called with a sentence for the user, from any thread.

    Attributes:
        settings: Of this process.
        token: What every request must carry.
        read_token: What those may carry that only read.
        listen: Where it listens, see `probing.messages.card.Card`.
        certificate: What it shows there, if that is encrypted.
    """

    def __init__(
        self,
        settings: Settings,
        directory: RunDirectory,
        tokens: Tokens,
        tell: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self._tell = tell
        self._told: set[str] = set()
        self.token, self.read_token = tokens
        self.listen: str | None = None
        self.certificate: Certificate | None = None
        self._directory = directory
        self._watch = StallWatch()
        self._roster = Roster(directory, self._watch.stalled_s)
        self._ranks = Ranks(self._roster, Workers(lambda: self.settings))
        self._server = Server(self, self._endpoints(), self._close)
        self._is_over = threading.Event()
        self._next_prune = 0.0
        self._unions: Unions | None = None
        self._figures = Figures(
            self._roster,
            settings.export_metrics,
            findings_path(directory) if settings.export_findings else None,
        )
        self._for_prometheus: Metrics | None = None
        self._sender: Sender | None = None

    def send(self, wanted: Wanted) -> None:
        """Have `run` send to a receiver of OpenTelemetry, too.

        Raises:
            MissingLibrary: The SDK is not installed.
        """
        try:
            from .otel.sending import Sender
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "opentelemetry":
                raise
            raise MissingLibrary("probing-agent[otel]") from None
        self._sender = Sender(wanted, self._roster, self._figures, self._tell)

    def run(self, *, told: Callable[[str], None], idle_s: float | None) -> None:
        """Serve until stopped, or until no process has been there for `idle_s`.

        Args:
            told: Called with the address once it listens.
            idle_s: None to serve for ever.

        Raises:
            NoPermission: The address is open to other machines, and that was not allowed.
            BadSetting: Its certificate cannot be read.
            OSError: It cannot be bound.
        """
        listening, self.listen, self.certificate = bind_tcp(self.settings, 0)
        card = NodeCard(
            pid=os.getpid(),
            start_time=process.start_time(os.getpid()) or 0,
            listen=self.listen,
            fingerprint=self.certificate.fingerprint if self.certificate else None,
            pid_namespace=process.pid_namespace(),
        )
        write_private(token_path(self._directory), self.token.encode())
        write_private(read_token_path(self._directory), self.read_token.encode())
        write_node(self._directory, card)
        looking = threading.Thread(target=self._look_after, args=(idle_s,), daemon=True)
        looking.start()
        told(self.listen)
        if self._sender is not None:
            self._sender.start()
        try:
            self._server.run([listening])
        finally:
            self._is_over.set()
            listening.close()
            if self._sender is not None:
                self._sender.close()
            forget_node(self._directory)
            looking.join(_END_S)

    def stop(self) -> None:
        """End `run`, from any thread or signal handler."""
        self._server.stop()

    def _endpoints(self) -> list[Endpoint]:
        own = (*NODE_ROUTES, ROUTES_BY_NAME["ping"], ROUTES_BY_NAME["openapi"])
        return [
            *((route, getattr(self, f"_{route.name}")) for route in own),
            *((route, self._ranks.handler(route.name)) for route in RANK_ROUTES),
        ]

    async def _ping(self, request: web.Request) -> web.StreamResponse:
        return json_answer(wire.Pong(pid=os.getpid()))

    async def _members(self, request: web.Request) -> web.StreamResponse:
        with_states = flag(request, "states")
        answer = await asyncio.to_thread(self._roster.members, with_states=with_states)
        return json_answer(answer)

    async def _union(self, request: web.Request) -> web.StreamResponse:
        if self._unions is None:
            self._unions = Unions(self._directory)
        return await self._unions.answer(request)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        text = await asyncio.to_thread(self._metrics_text)
        kind = f"{wire.METRICS_TYPE}; version=1.0.0; charset=utf-8"
        return web.Response(body=text, headers={"Content-Type": kind})

    def _metrics_text(self) -> bytes:
        from .metrics import Metrics

        if self._for_prometheus is None:
            self._for_prometheus = Metrics(self._figures)
        return self._for_prometheus.text()

    async def _openapi(self, request: web.Request) -> web.StreamResponse:
        own = tuple(route for route in ROUTES if route.name in {"ping", "openapi"})
        return web.json_response(openapi(VERSION, (*own, *NODE_ROUTES, *RANK_ROUTES)))

    def _look_after(self, idle_s: float | None) -> None:
        """The thread that watches: for stalls, for jobs to register with, for when to leave."""
        registrar = Registrar(as_reached(self.listen or ""), self.settings.job_dir)
        needed = time.monotonic()
        while not self._is_over.is_set():
            if self._look(registrar):
                needed = time.monotonic()
            elif idle_s is not None and time.monotonic() - needed > idle_s:
                self.stop()
                break
            self._is_over.wait(_LOOK_S)
        try_each((registrar.close, self._watch.close))

    def _look(self, registrar: Registrar) -> bool:
        """Look once, whatever fails of it; returns whether there is anybody, as far as is known."""
        found: list[list[ProcessFolder]] = []
        failed = try_each((lambda: found.append(self._roster.alive()),))
        for alive in found:
            failed += self._watch.look(alive)
            failed += try_each((functools.partial(registrar.look, alive), self._prune))
        for what in failed:
            if what not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(what)
                self._tell(f"what the node server looks after fails, and is tried again: {what}")
        return any(found) or not found

    def _prune(self) -> None:
        """Remove old records, if that is due."""
        now = time.monotonic()
        if now >= self._next_prune:
            self._next_prune = now + _PRUNE_S
            self._roster.prune(self.settings)

    def _close(self) -> None:
        """Let go of what serving has taken."""
        self._ranks.close()
        if self._unions is not None:
            self._unions.close()


def take_place(directory: RunDirectory) -> int | None:
    """Become the node server of a run directory; None where another one is.

    Raises:
        UnsafeRunDirectory: Somebody else could write to it.
        OSError: It cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        directory.path.mkdir(mode=0o700, parents=True)
    directory.verify()
    fd = os.open(lock_path(directory), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
