"""Who may ask over TCP, and for what: the Host a request names, and the token it carries.

Rules of this file: pure decisions, no I/O, nothing of aiohttp. Names are compared as exact texts,
never parsed and never looked up: every name that means the same in another way of writing is one
that a web page could have made to point here. Tokens are compared in constant time.

    token         may read      may change      may eval, or have a file written where it says
    the token     yes           yes             where PROBING_ALLOW_EVAL=1
    read_token    yes           no              no

A file written where the sender says is as much as code: over another file, it is that file's end.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...errors import BadHost, BadToken, EvalNotAllowed, ReadOnlyToken, WritingNotAllowed
from ...messages.routes import Access
from ...settings import Settings

_EVERYWHERE = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - compared, not bound


class Listening(Protocol):
    """What is asked; see `server.Served`."""

    settings: Settings
    token: str
    read_token: str
    listen: str | None


def check_host(given: Sequence[str], served: Listening, reached: Sequence[Any] | None) -> None:
    """Compare the Host of a request with the names that are the server's.

    Args:
        given: The header, as often as it came.
        reached: The address at this end of its connection; None where that is gone.

    Raises:
        BadHost: It is none of them, or not one.
    """
    if len(given) != 1 or given[0] not in _names(served, reached):
        raise BadHost(", ".join(given))


def _names(served: Listening, reached: Sequence[Any] | None) -> set[str]:
    """Every Host that is served."""
    listen = served.listen or ""
    address = listen.removeprefix("https://")
    name, _, port = address.rpartition(":")
    names = {f"{host}:{port}" for host in (name, "localhost", "127.0.0.1", "[::1]")}
    if name in _EVERYWHERE:  # then the machine's name, and the address that was connected to
        hosts = [socket.gethostname(), socket.gethostname().partition(".")[0]]
        if reached:
            number = str(reached[0]).removeprefix("::ffff:")
            hosts.append(f"[{number}]" if ":" in number else number)
        names.update(f"{host}:{port}" for host in hosts)
    usual = ":443" if listen != address else ":80"
    names.update([host.removesuffix(usual) for host in names])  # clients name no usual port
    names.update(host.strip() for host in served.settings.hosts.split(","))
    return names - {"", ":"}


def check_access(given: Sequence[str], served: Listening, route: str, access: Access) -> None:
    """Find out what the token of a request allows, and whether the route is among it.

    Args:
        given: The header ``Authorization``, as often as it came.
        route: What is asked for, by its name.

    Raises:
        BadToken: There is none, or a wrong one.
        ReadOnlyToken: It may only read.
        EvalNotAllowed: No code of TCP requests is run.
    """
    if not given:
        raise BadToken(missing=True)
    header = given[0].encode("utf-8", "replace") if len(given) == 1 else b""
    is_full = _is(header, served.token)
    is_reader = _is(header, served.read_token)
    if not (is_full or is_reader):
        raise BadToken(missing=False)
    if access != "read" and not is_full:
        raise ReadOnlyToken(route)
    if access == "eval" and not served.settings.allow_eval:
        raise EvalNotAllowed


def check_writing(body: bytes, writes: Callable[[bytes], bool], served: Listening) -> None:
    """Refuse a request whose body has a file written where the sender says.

    Args:
        writes: Whether a body does.

    Raises:
        WritingNotAllowed: It does, and this is not allowed from afar.
    """
    if not served.settings.allow_eval and writes(body):
        raise WritingNotAllowed


def _is(header: bytes, token: str) -> bool:
    """Whether a header carries a token; one that is empty is carried by none."""
    return hmac.compare_digest(header, f"Bearer {token}".encode()) and bool(token)
