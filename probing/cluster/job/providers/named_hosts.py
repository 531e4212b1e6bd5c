"""The addresses behind a DNS name, as those of a Kubernetes headless service.

Rules of this file: the resolver is a parameter; one name, one question.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from ....errors import BadEndpoint, NotProbing
from .addresses import NODE_PORT, is_port, with_port

Resolver = Callable[..., Sequence[tuple[Any, ...]]]


def named_hosts(
    word: str, *, kind: str = "dns", resolve: Resolver | None = None
) -> tuple[str, ...]:
    """Every address that a name stands for, as host:port.

    Args:
        word: NAME or NAME:PORT.
        kind: What the user has typed before it.

    Raises:
        BadEndpoint: There is no name.
        NotProbing: It is not known.
    """
    name, _, port = word.partition(":")
    if not name or (port and not is_port(port)):
        raise BadEndpoint(f"{kind}:{word}", "it must be a name, or name:port")
    number = int(port) if port else NODE_PORT
    try:
        found = (resolve or socket.getaddrinfo)(name, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter of a name that can be none, as `a..b`
        raise NotProbing(word, "the host name is not known") from None
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    return tuple(with_port(address, number) for address in addresses)
