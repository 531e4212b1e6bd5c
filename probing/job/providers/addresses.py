"""What listens at host:port: the agent of one process, or a node server for all of its machine.

Rules of this file: one question to each address, two where it is an agent.
"""

from __future__ import annotations

import dataclasses

from ... import job_wire, rank_paths, wire
from ...card import Card
from ...endpoint import resolve
from ...errors import NoSuchRoute, ProbingError
from ...reading import Reading
from ...rundir import RunDirectory
from ...transport import Address, Held, ask
from ..membership import Member, member_of

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


def members_at(
    endpoint: str,
    directory: RunDirectory,
    *,
    token: str | None,
    timeout_s: float,
    states: bool = False,
    held: Held | None = None,
) -> list[Member]:
    """The processes behind an address.

    Args:
        states: Whether a node server is to say what each of its processes does.
        held: What it has answered already.

    Raises:
        ProbingError: Nobody answers there, or not to us.
    """
    address = resolve(endpoint, directory, token=token)
    assert isinstance(address, Address)  # only host:port and URLs come here
    if held:
        address = dataclasses.replace(address, held=held)
    try:
        reading = members_reading(states=states)
        data = ask(address, reading.route, timeout_s=timeout_s, flags=reading.flags)
    except ProbingError as error:
        if error.code != NoSuchRoute.code:
            raise
        card = wire.decode(Card, ask(address, "status", timeout_s=timeout_s))
        return [_of_agent(card, endpoint)]
    answer = wire.decode(job_wire.MembersAnswer, data)
    scheme = "https" if address.tls else "http"
    return [_of_node(entry, f"{scheme}://{address}", endpoint) for entry in answer.members]


def members_reading(*, states: bool) -> Reading:
    """The request for a node server's processes."""
    return Reading(route="members", flags=("states",) if states else ())


def _of_agent(card: Card, endpoint: str) -> Member:
    """The process whose own agent listens there."""
    return member_of(card, endpoint, is_alive=True)


def _of_node(entry: job_wire.NodeMember, url: str, endpoint: str) -> Member:
    """A process of a node server's machine."""
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
