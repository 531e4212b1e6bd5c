"""What listens at host:port: the agent of one process, or a node server for all of its machine.

Rules of this file: one question to each address, two where it is an agent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....errors import NoSuchRoute, NotProbing, ProbingError
from ....messages import common as wire, rank_paths
from ....messages.about import job as job_wire
from ....messages.card import Card
from ....reach.address import Address
from ....reach.endpoint import resolve
from ....reach.transport import ask
from ....rundir.folders import RunDirectory
from ..membership import Member, member_of
from ..rank_sets import MOST_RANKS

NODE_PORT = 9741
"""Where a node server listens unless told otherwise."""


def with_port(host: str, port: int = NODE_PORT) -> str:
    """A host as host:port, with the node servers' usual port where it names none."""
    name, colon, given = host.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return f"{host}:{port}"
    if colon and given.isdecimal() and (":" not in name or name.startswith("[")):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_port(text: str) -> bool:
    """Whether a text is the number of a port."""
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536


def members_at(
    endpoint: str,
    directory: RunDirectory,
    *,
    token: str | None,
    timeout_s: float,
    states: bool = False,
    is_told: bool = False,
) -> list[Member]:
    """The processes behind an address.

    Args:
        states: Whether a node server is to say what each of its processes does.
        is_told: Whether others named it, and not the user.

    Raises:
        ProbingError: Nobody answers there, or not to us.
    """
    address = resolve(endpoint, directory, token=token, is_told=is_told)
    assert isinstance(address, Address)  # only host:port and URLs come here
    try:
        flags = ("states",) if states else ()
        data = ask(address, "members", timeout_s=timeout_s, flags=flags)
    except ProbingError as error:
        if error.code != NoSuchRoute.code:
            raise
        card = wire.decode(Card, ask(address, "status", timeout_s=timeout_s))
        _check([card], endpoint)
        found = [member_of(card, endpoint, is_alive=True)]
    else:
        answer = wire.decode(job_wire.MembersAnswer, data)
        _check(answer.members, endpoint)
        url = f"{'https' if address.tls else 'http'}://{address}"
        found = [_of_node(entry, url, endpoint) for entry in answer.members]
    is_proven = address.tls or not is_told
    return [dataclasses.replace(member, is_proven=is_proven) for member in found]


def _check(members: Sequence[Card | job_wire.NodeMember], endpoint: str) -> None:
    """Refuse what no job is like: each rank that it should have is looked for.

    Raises:
        NotProbing: It is so.
    """
    sizes = [size for m in members for size in (m.world_size, (m.rank or 0) + 1) if size]
    if any(not 0 < size <= MOST_RANKS for size in sizes):
        raise NotProbing(endpoint, f"it tells of a job of more than {MOST_RANKS:,} ranks")


def _of_node(entry: job_wire.NodeMember, url: str, endpoint: str) -> Member:
    return Member(
        rank=entry.rank,
        host=entry.host,
        pid=entry.pid,
        world_size=entry.world_size,
        local_rank=entry.local_rank,
        job=entry.job,
        attempt=entry.attempt,
        endpoint=rank_paths.endpoint_at(url, entry.key),
        via=endpoint,
        is_alive=entry.is_alive,
        started_ns=entry.started_ns,
        state_word=entry.state,
        step=entry.step,
    )
