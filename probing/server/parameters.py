"""Reads the parameters of a request's address.

Rules of this file: what is not one of the values that a parameter may have is refused, by agents
and node servers alike.
"""

from __future__ import annotations

from aiohttp import web

from ..errors import BadRequest

_LONGEST_S = 86_400.0


def flag(request: web.Request, name: str) -> bool:
    """A parameter that is ``true`` or ``false``; false where it is not given.

    Raises:
        BadRequest: It is something else.
    """
    value = request.query.get(name, "false")
    if value not in {"true", "false"}:
        raise BadRequest(f"{name} must be true or false")
    return value == "true"


def seconds(request: web.Request, name: str) -> float | None:
    """A parameter that is a time in seconds; None where it is not given.

    Raises:
        BadRequest: It is something else, or longer than a day.
    """
    text = request.query.get(name)
    try:
        value = None if text is None else float(text)
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value <= _LONGEST_S:
        raise BadRequest(f"{name} must be a number of seconds, at most {_LONGEST_S:g}")
    return value
