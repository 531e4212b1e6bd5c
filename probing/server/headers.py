"""Strips version headers from HTTP responses.

Rules of this file: runs on a server's event loop, and knows of aiohttp only what it offers. Whoever
has no token is told no version, of us, of Python or of aiohttp: it names the attacks that fit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp.http import StreamWriter

if TYPE_CHECKING:
    from aiohttp import web
    from multidict import CIMultiDict


class _QuietWriter(StreamWriter):
    """Writes an answer without the header ``Server``."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """See `StreamWriter`."""
        headers.popall("Server", None)
        await super().write_headers(status_line, headers)


def silence(server: web.Server) -> None:
    """Have every answer of a server written so, those to what is no HTTP among them."""
    make = server.request_factory

    def quietly(
        message: Any, payload: Any, protocol: Any, _: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        quiet = _QuietWriter(protocol, asyncio.get_running_loop())
        return make(message, payload, protocol, quiet, task)

    server.request_factory = quietly
