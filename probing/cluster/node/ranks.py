"""What a node server answers for each process of its machine.

Rules of this file: one method per route of a process, by the route's name; runs on the server's
event loop, and what waits does so in a thread. Recorded tables are read by a SQL worker, stacks are
had by the ladder, so that both work in every state of the process; the rest is passed on to its
agent, if that can answer at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web

from ...client.lost import UNSURE_OF_CODE, Unsure, ends_soon, unsure_of_action
from ...errors import (
    BadRequest,
    ConnectionLost,
    InternalError,
    NotProbed,
    ProbingError,
    ProcessEnded,
)
from ...messages import common as wire, rank_paths
from ...messages.about.act import ActRequest
from ...messages.limits import ready_s
from ...messages.routes import ROUTES_BY_NAME
from ...reach import ladder
from ...reach.ping import LEFT, has_left, ping
from ...ring.peek import tables_answer
from ...rundir.folders import ProcessFolder, short_path
from ...server.bodies import json_answer, read_body, send_arrow
from ...server.parameters import flag
from .roster import Roster
from .workers import Workers

T = TypeVar("T")

_PIECE = 1 << 16
_AGENT = "http://localhost"
_THREADS = 64
"""Each waits for one process at a time; a hung one takes seconds."""


class Ranks:
    """The routes under ``/v1/ranks/{key}``."""

    def __init__(self, roster: Roster, workers: Workers) -> None:
        self._roster = roster
        self._workers = workers
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="rank")

    def close(self) -> None:
        """End what runs for clients."""
        self._workers.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def handler(self, name: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """What answers a route: a method of that name, else the process's own agent."""
        own: Any = getattr(self, name, None)
        return own or self.forward

    async def status(self, request: web.Request) -> web.StreamResponse:
        """Its card."""
        return json_answer(_card_of(self._folder(request)))

    async def tables(self, request: web.Request) -> web.StreamResponse:
        """The counts of its tables."""
        return json_answer(await self._in_thread(tables_answer, self._folder(request)))

    async def query(self, request: web.Request) -> web.StreamResponse:
        """SQL over its tables."""
        question = await read_body(request, wire.QueryRequest)
        return await send_arrow(request, self._workers.query(question, self._folder(request)))

    async def backtrace(self, request: web.Request) -> web.StreamResponse:
        """Its stacks, by the first rung of the ladder that holds."""
        locals_ = flag(request, "locals")
        return json_answer(await self._backtrace(self._folder(request), locals_=locals_))

    async def _backtrace(self, folder: ProcessFolder, *, locals_: bool) -> wire.Backtrace:
        notes: list[str] = []
        trace = await self._in_thread(
            functools.partial(ladder.backtrace_of, folder, notes, locals=locals_)
        )
        words = [*notes, *([trace.note] if trace.note else [])]
        return dataclasses.replace(trace, note="; ".join(words) or None)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The answer of its own agent, passed on as it comes."""
        folder = self._folder(request)
        await self._in_thread(_require_agent, folder)
        path = rank_paths.route_in(folder.path.name, request.path)
        query = f"?{request.query_string}" if request.query_string else ""
        async with _session_with(folder) as session:
            return await _pass_on(session, request, f"{path}{query}", folder)

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Do what waits; one that hangs costs a thread of many."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(work, *arguments))

    def _folder(self, request: web.Request) -> ProcessFolder:
        return self._roster.folder(request.match_info["key"])


@contextlib.asynccontextmanager
async def _session_with(folder: ProcessFolder) -> AsyncIterator[ClientSession]:
    """A connection to the agent of a process, that waits as long as it is let."""
    with short_path(folder.socket) as address:
        connector = UnixConnector(address)
        async with ClientSession(
            connector=connector, timeout=ClientTimeout(total=None), auto_decompress=False
        ) as session:
            yield session


async def _pass_on(
    session: ClientSession, request: web.Request, path: str, folder: ProcessFolder
) -> web.StreamResponse:
    """Send a request to an agent, and its answer back, piece by piece."""
    body = await request.read() or None
    headers, url = {"Content-Type": wire.JSON_TYPE}, f"{_AGENT}{path}"
    response, asked_ns = None, time.perf_counter_ns()
    try:
        async with session.request(request.method, url, data=body, headers=headers) as answer:
            kind = answer.headers.get("Content-Type", wire.JSON_TYPE)
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": kind})
            await response.prepare(request)
            async for piece in answer.content.iter_chunked(_PIECE):
                await response.write(piece)
            await response.write_eof()
            return response
    except (OSError, ClientError) as error:
        if response is not None and response.prepared:
            raise  # the answer breaks off, as it did there
        raise await asyncio.to_thread(_lost, folder, _unsure(path, body), asked_ns) from error


def _unsure(path: str, body: bytes | None) -> Unsure | None:
    """What a request may have done whose answer is lost; None for one that only asks."""
    if path == ROUTES_BY_NAME["eval"].path:
        return UNSURE_OF_CODE
    if path != ROUTES_BY_NAME["act"].path:
        return None
    try:
        return unsure_of_action(wire.decode(ActRequest, body or b""))
    except BadRequest:  # of a later version
        return unsure_of_action(None)


def _lost(folder: ProcessFolder, unsure: Unsure | None, asked_ns: int) -> ProbingError:
    """Why an agent that was there a moment ago gave no answer, and what it may have done."""
    if ends_soon(folder):
        error: ProbingError = ProcessEnded(folder.pid, "no answer came")
    elif has_left(folder):
        error = NotProbed(folder.pid, LEFT)
    else:
        return ConnectionLost(str(folder.socket))  # of which who asked knows what it may mean
    return error if unsure is None else unsure.told(error, folder, asked_ns)


def _require_agent(folder: ProcessFolder) -> None:
    """Find out quickly whether a process can answer.

    Raises:
        ProcessEnded: It has ended.
        NotProbed: It has no agent.
        NotAnswering: It runs no Python code.
    """
    if not folder.is_alive():
        raise ProcessEnded(folder.pid, "only what it recorded can be asked")
    ping(folder, timeout_s=ready_s())


def _card_of(folder: ProcessFolder) -> wire.Card:
    """Who it is.

    Raises:
        InternalError: Its card cannot be read.
    """
    card = folder.read_card()
    if card is None:
        raise InternalError(f"the card in {folder.path} cannot be read")
    return card
