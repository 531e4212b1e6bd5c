"""Whom a node server asks for somebody else, and with what.

Rules of this file: it asks with the token that it was asked with, so that nobody gets to do by
another's hands what he could not do himself; and it never carries that token where it is less
safe than on the way it came.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from ..endpoint import resolve
from ..errors import NotProbing, ProbingError
from ..limits import READY_S
from ..rundir import RunDirectory
from ..transport import Address, ask
from ..tree_wire import Node
from ..trust import Trust

_TLS = "https://"


def place() -> str:
    """This machine and its network, to tell whether a loopback address means the same to two."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def may_ask(url: str, *, listen: str, asker: str, here: str) -> bool:
    """Whether a node server hands a question on to an address.

    Args:
        listen: Where it listens itself.
        asker: The `place` of who has named the address.
        here: Its own.
    """
    host = urlsplit(url).hostname or ""
    is_near = _is_loopback(host)
    if is_near and (asker != here or not here):
        return False
    own = urlsplit(listen if "//" in listen else f"//{listen}").hostname or ""
    is_plain = not url.startswith(_TLS)
    if is_plain and listen.startswith(_TLS):
        return False
    return is_near or not is_plain or not _is_loopback(own)


def node_server(
    url: str, directory: RunDirectory, token: str | None, trust: Trust | None = None
) -> Address:
    """Where a node server is asked.

    Raises:
        ProbingError: It is no address.
    """
    found = resolve(url, directory, token=token, trust=trust)
    if not isinstance(found, Address) or found.key:
        raise NotProbing(url, "it is not the address of a node server")
    return found


def given_with(address: Address) -> Hashable:
    """What must be equal for one node server to be told another one's token."""
    return address.tls, address.token


def node_at(address: Address) -> Node:
    """The node server at an address, as others are told of it."""
    return Node(url=url_of(address), fingerprints=address.trust.fingerprints)


def url_of(address: Address) -> str:
    """Scheme, host and port."""
    return f"{'https' if address.tls else 'http'}://{address}"


def require_leader(address: Address) -> None:
    """Find out quickly whether a node server answers, before many wait for it.

    Raises:
        ProbingError: It does not.
    """
    ask(address, "ping", timeout_s=READY_S)


def reachable(
    nodes: Iterable[Node], directory: RunDirectory, *, token: str, listen: str, asker: str
) -> dict[str, Address]:
    """Where those are asked that are asked for somebody else; the others are left to him."""
    here = place()
    found = {}
    for node in nodes:
        if may_ask(node.url, listen=listen, asker=asker, here=here):
            trust = Trust(fingerprints=node.fingerprints) if node.fingerprints else None
            try:
                found[node.url] = node_server(node.url, directory, token, trust)
            except ProbingError:
                continue
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
