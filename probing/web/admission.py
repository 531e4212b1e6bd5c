"""Who may ask the server of the page: this page alone, with the token of its link.

Rules of this file: as those of `server.access.admission`, with one difference: the requests come
from a browser, so that the page's own origin is let in, and no other. The token travels in the
header ``Authorization``, never in an address that a server sees, and never in a cookie, which a
browser would send to every port of the same host.
"""

from __future__ import annotations

from aiohttp import web

from ..errors import BadHost, BadOrigin
from ..server.access.admission import Admission, Asked
from ..server.access.auth import check_access, check_host
from .routes import OPEN_ROUTES

_OPEN = frozenset(route.name for route in OPEN_ROUTES)
_OWN_SITES = frozenset({"same-origin", "none"})


class PageAdmission(Admission):
    """Stands before the handlers of the page's server."""

    def _check(self, request: web.Request, asked: Asked) -> None:
        """Refuse what may not ask.

        Raises:
            BadOrigin: A page of somebody else has sent it.
        """
        hosts = request.headers.getall("Host", [])
        transport = request.transport
        reached = transport.get_extra_info("sockname") if transport is not None else None
        check_host(hosts, self._agent, reached)
        if len(hosts) != 1:
            raise BadHost(", ".join(hosts))
        for origin in request.headers.getall("Origin", []):
            if origin != f"http://{hosts[0]}":
                raise BadOrigin(origin)
        if asked.name in _OPEN:
            return
        for site in request.headers.getall("Sec-Fetch-Site", []):
            if site not in _OWN_SITES:
                raise BadOrigin(site)
        given = request.headers.getall("Authorization", [])
        check_access(given, self._agent, asked.name, asked.access)
