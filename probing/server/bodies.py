"""Reads the bodies of requests, and sends those of answers.

Rules of this file: runs on the event loop of an agent or a node server. An answer that breaks off
is cut, never ended politely: whoever sends in pieces lets the error through.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from ..messages import common as wire

T = TypeVar("T")

_PIECE = 1 << 16


async def read_body(request: web.Request, cls: type[T]) -> T:
    """The body of a request as the object it must be.

    Raises:
        BadRequest: It is something else.
    """
    return wire.decode_request(cls, await request.read())


def json_answer(value: Any) -> web.Response:
    """A JSON answer."""
    return web.Response(body=wire.encode(value), content_type=wire.JSON_TYPE)


async def send_arrow(
    request: web.Request, pieces: AsyncGenerator[bytes, None]
) -> web.StreamResponse:
    """An Arrow stream; its first piece is awaited before the status is sent."""
    try:
        first = await anext(pieces)
        response = web.StreamResponse(headers={"Content-Type": wire.ARROW_TYPE})
        await response.prepare(request)
        await response.write(first)
        async for piece in pieces:
            await response.write(piece)
        await response.write_eof()
    finally:
        await pieces.aclose()
    return response


async def send_file(request: web.Request, path: Path) -> web.StreamResponse:
    """A gzipped file of the run folder, piece by piece."""
    response = web.StreamResponse(headers={"Content-Type": wire.TRACE_TYPE})
    await response.prepare(request)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            await response.write(piece)
    await response.write_eof()
    return response
