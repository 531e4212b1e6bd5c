"""Reads the parameters of a request's address.

Rules of this file: what is not one of the values that a parameter may have is refused, by agents
and node servers alike.
"""

from __future__ import annotations

from aiohttp import web

from ..errors import BadRequest


def flag(request: web.Request, name: str) -> bool:
    """A parameter that is ``true`` or ``false``; false where it is not given.

    Raises:
        BadRequest: It is something else.
    """
    value = request.query.get(name, "false")
    if value not in {"true", "false"}:
        raise BadRequest(f"{name} must be true or false")
    return value == "true"
