"""The server of the page as a whole: its socket, its token, its life.

Rules of this file: it listens on the loopback address alone, lives as long as the command, and
writes nothing to disk. The HTTP server, with its limits, is the agents' own.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable

from aiohttp import web

from ..server.certificate import Certificate
from ..server.server import Endpoint, Server
from ..server.sockets import bind_tcp
from ..settings import Settings
from . import documents
from .admission import PageAdmission
from .asking import Asking
from .processes import Processes
from .routes import DATA_ROUTES, OPEN_ROUTES

_HOST = "127.0.0.1"
_KEPT_S = 75.0
"""How long a connection of the browser's is kept between two requests."""
_MEMORY_TIMES = 4
"""What a statement may hold, by what one of an agent's may: the machine is not a stranger's."""


class WebServer:
    """Serves the page to the person who has started it.

    Attributes:
        settings: Of this process.
        token: What every request for data must carry.
        read_token: There is none beside it.
        listen: Where it listens.
        certificate: None: nothing leaves the machine.
    """

    read_token = ""
    certificate: Certificate | None = None

    def __init__(
        self, settings: Settings, processes: Processes, port: int, *, may_eval: bool = False
    ) -> None:
        self.settings = _for_browser(settings, port, may_eval=may_eval)
        self.token = secrets.token_hex(32)
        self.listen: str | None = None
        self._asking = Asking(processes, lambda: self.settings)
        self._server = Server(self, self._endpoints(), self._asking.close, admission=PageAdmission)

    def run(self, told: Callable[[str], None]) -> None:
        """Serve until stopped.

        Args:
            told: Called with the link once it listens.

        Raises:
            OSError: The port cannot be bound.
        """
        listening, self.listen, _ = bind_tcp(self.settings, 0)
        told(f"http://{self.listen}/#token={self.token}")
        self._server.run([listening])

    def stop(self) -> None:
        """End `run`, from any thread or signal handler."""
        self._server.stop()

    def _endpoints(self) -> list[Endpoint]:
        """Everything that is answered."""
        return [
            *((route, getattr(self, f"_{route.name}")) for route in OPEN_ROUTES),
            *((route, getattr(self._asking, route.name)) for route in DATA_ROUTES),
        ]

    async def _document(self, request: web.Request) -> web.StreamResponse:
        return documents.document()

    async def _script(self, request: web.Request) -> web.StreamResponse:
        return documents.static("page.js")

    async def _style(self, request: web.Request) -> web.StreamResponse:
        return documents.static("page.css")


def _for_browser(settings: Settings, port: int, *, may_eval: bool) -> Settings:
    """The settings of this process, where a browser on the same machine needs others."""
    return dataclasses.replace(
        settings,
        listen=f"{_HOST}:{port}",
        hosts="",
        tls_cert="",
        tls_key="",
        allow_eval=may_eval,
        header_timeout_s=max(settings.header_timeout_s, _KEPT_S),
        query_memory_mib=settings.query_memory_mib * _MEMORY_TIMES,
        query_max_bytes=settings.query_max_bytes * _MEMORY_TIMES,
    )
