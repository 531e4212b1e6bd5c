"""Who may ask: the bearer token of each call, or the password of a first one.

Rules of this file: the tokens, and how they are compared, are those of `server.access.auth`. A
driver that knows a user and a password alone gives the token as the password; whoever the user is,
he gets it back as a bearer token, which its other calls carry.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import flight

from ..errors import ProbingError
from ..server.access.auth import Listening, check_access

_HEADER = "authorization"


class NoQuestions(flight.ServerAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    """Lets a first call through, which the headers have been checked of."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """There is nothing to ask."""

    def is_valid(self, token: bytes) -> bytes:
        """The headers say who it is."""
        return b""


class Access(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Stands before every call.

    Args:
        served: Whose tokens.
    """

    def __init__(self, served: Listening) -> None:
        super().__init__()
        self._served = served

    def start_call(self, info: Any, headers: Mapping[str, Sequence[Any]]) -> _Told:
        """Refuse a call without a token.

        Raises:
            FlightUnauthenticatedError: It has none, or a wrong one.
        """
        given = [
            word for name, words in headers.items() if name.lower() == _HEADER for word in words
        ]
        bearers = list(dict.fromkeys(map(_as_bearer, given)))  # some drivers send it twice
        try:
            check_access(bearers, self._served, "it", "read")
        except ProbingError as error:
            raise flight.FlightUnauthenticatedError(error.message.rstrip(".")) from None
        return _Told(bearers[0] if bearers[0] not in given else None)


class _Told(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """Tells whoever gave it as a password the token that counts for the next calls."""

    def __init__(self, bearer: str | None) -> None:
        super().__init__()
        self._bearer = bearer

    def sending_headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {_HEADER: self._bearer} if self._bearer else {}


def _as_bearer(header: str | bytes) -> str:
    """What stands in a header, with a password as the token that it is."""
    text = header.decode("utf-8", "replace") if isinstance(header, bytes) else header
    kind, _, word = text.partition(" ")
    if kind.lower() == "bearer":
        return f"Bearer {word}"
    if kind.lower() != "basic":
        return text
    try:
        padded = word + "=" * (-len(word) % 4)  # which Go leaves out
        _, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return text
    return f"Bearer {password}"
