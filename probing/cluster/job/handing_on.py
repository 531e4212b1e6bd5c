"""Whom a node server asks for somebody else, and with what.

Rules of this file: it asks with the token that it was asked with, so that nobody gets to do by
another's hands what he could not do himself; and it never carries that token where it is less
safe than on the way it came.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Hashable, Iterable
from pathlib import Path

from ...errors import NotProbing, ProbingError
from ...messages.limits import ready_s
from ...messages.tree import Node
from ...reach.endpoint import resolve
from ...reach.transport import Address, ask
from ...reach.trust import Trust
from ...rundir.folders import RunDirectory

_TLS = "https://"


def place() -> str:
    """This machine and its network, to tell whether a loopback address means the same to two."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def node_server(
    url: str,
    directory: RunDirectory,
    token: str | None,
    trust: Trust | None = None,
    *,
    is_told: bool = False,
) -> Address:
    """Where a node server is asked; arguments as of `endpoint.resolve`.

    Raises:
        ProbingError: It is no address.
    """
    found = resolve(url, directory, token=token, trust=trust, is_told=is_told)
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
    ask(address, "ping", timeout_s=ready_s())


def reachable(
    nodes: Iterable[Node], directory: RunDirectory, *, token: str, listen: str, asker: str
) -> dict[str, Address]:
    """Where those are asked that are asked for somebody else; the others are left to him.

    A loopback address means something to who is on the same machine alone, so `transport` refuses
    one, in whatever way it is written, that somebody of another machine has named; and what goes
    out unencrypted goes no farther than this server's own environment allows.

    Args:
        listen: Where the node server listens itself.
        asker: The `place` of who has named the addresses.
    """
    is_far = asker != place() or not asker
    found = {}
    for node in nodes:
        if listen.startswith(_TLS) and not node.url.startswith(_TLS):
            continue
        trust = Trust(fingerprints=node.fingerprints) if node.fingerprints else None
        try:
            address = node_server(node.url, directory, token, trust)
        except ProbingError:
            continue
        found[node.url] = dataclasses.replace(address, is_far=is_far)
    return found
