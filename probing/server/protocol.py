"""Answers in our words what aiohttp would answer in its own.

Rules of this file: runs on a server's event loop. What cannot be read as HTTP, and what fails
before a route is found, gets the one error body; nothing of what was sent is repeated in it.
"""

from __future__ import annotations

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from ..errors import BadRequest, InternalError, ProbingError, WrongMethod
from ..messages import common as wire

_UNREADABLE = 400
"""What aiohttp makes of bytes that it cannot read."""


class PeerProtocol(web.RequestHandler):
    """One connection, whose peer may send anything."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """See `web.RequestHandler`; the connection is closed then."""
        if request.writer.output_size:
            raise ConnectionError("an answer has begun already")
        response = refusal(_error_for(status, exc))
        response.force_close()
        return response


def refusal(error: ProbingError) -> web.Response:
    """An error as the one error body."""
    return web.Response(
        body=wire.encode_error(error),
        status=error.status,
        headers={"Allow": error.allowed} if isinstance(error, WrongMethod) else None,
        content_type=wire.JSON_TYPE,
    )


def _error_for(status: int, cause: BaseException | None) -> ProbingError:
    """What went wrong where aiohttp gave up."""
    if isinstance(cause, LineTooLong):
        return BadRequest("a line of its head is too long")
    if status == _UNREADABLE:
        return BadRequest("what came is no HTTP request that can be read")
    return InternalError(type(cause).__name__)
