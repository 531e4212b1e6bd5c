"""What the server needs for evals beside their results: who asks, and results as they come.

Rules of this file: runs on the agent's event loop, but for `_Feed.tell`, which runs in the thread
of the eval and waits there for the client.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from concurrent.futures import CancelledError, TimeoutError as FutureTimedOut

from aiohttp import web

from ...errors import ProbingError
from ...messages import common as wire
from ...messages.about.eval import LINES_TYPE, RepeatRequest
from ...messages.common import EvalResult
from ..audit.request_log import Sender
from .evaluation import GRACE_S
from .evaluator import Evaluator
from .repetition import Repetition

_CREDENTIALS = struct.Struct("iII")
_WAITING = 16
"""How many results may wait for a slow client."""
_PATIENCE_S = 30.0
_LOOK_S = 0.5
"""How often it is looked whether a run is late."""


def sender_of(request: web.Request) -> Sender:
    """Who has sent a request: a process by the kernel's word, or an address."""
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is not None and connection.family == socket.AF_UNIX:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(data)
        return Sender(uid=uid, pid=pid)
    return Sender(address=request.remote or "?")


async def stream_results(
    request: web.Request, evaluator: Evaluator, question: RepeatRequest
) -> web.StreamResponse:
    """Send a line for each run of code that is repeated, until it is over or the client goes."""
    feed = _Feed()
    repetition = evaluator.repeat(question, sender_of(request), feed.tell)
    response = web.StreamResponse(headers={"Content-Type": LINES_TYPE})
    try:
        await response.prepare(request)
        while (item := await _next(feed, repetition)) is not None:
            await response.write(_line(item))
            if repetition.is_overdue:
                break
        await response.write_eof()
    finally:
        feed.is_open = False
        if not repetition.is_overdue:
            repetition.cancel("given up by the client")
            asyncio.get_running_loop().call_later(GRACE_S, repetition.leave_behind)
    return response


async def _next(feed: _Feed, repetition: Repetition) -> EvalResult | ProbingError | None:
    """What comes next, or that a run is late, which nothing may come of for long."""
    while True:
        try:
            return await asyncio.wait_for(feed.lines.get(), _LOOK_S)
        except asyncio.TimeoutError:
            if repetition.is_late():
                return repetition.overdue()


class _Feed:
    """Results on their way from the thread of an eval to the event loop."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[EvalResult | ProbingError | None] = asyncio.Queue(_WAITING)
        self.is_open = True
        self._loop = asyncio.get_running_loop()

    def tell(self, item: EvalResult | ProbingError | None) -> bool:
        """Hand a result over; says whether the client is still there."""
        if not self.is_open:
            return False
        try:
            asyncio.run_coroutine_threadsafe(self.lines.put(item), self._loop).result(_PATIENCE_S)
        except (FutureTimedOut, CancelledError, RuntimeError):  # nobody reads, or the loop is gone
            return False
        return self.is_open


def _line(item: EvalResult | ProbingError) -> bytes:
    body = wire.encode_error(item) if isinstance(item, ProbingError) else wire.encode(item)
    return body + b"\n"
