"""What travels where node servers are asked through other node servers.

Rules of this file: as in `probing.messages.common`. A node that an answer does not account for has
not been reached by who was asked, and is asked by who asks. The answer to a `TreeRequest` is an
Arrow IPC stream whose schema carries, as `NODES_KEY`, a `NodeAccounts`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .reading import Reading
from .union import UnionMember, UnionOutcome, UnionRequest

NODES_KEY = b"probing.nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node server that is to be asked by another one.

    Attributes:
        url: Its scheme, host and port.
        fingerprints: Of the certificates that it may show; none means what the one who asks it
            believes of itself.
    """

    url: str
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a group of nodes is asked.

    Attributes:
        place: The machine and network of who has named the addresses; a loopback address means
            something there only.
        fan_out: How many nodes one asks at most before it hands on groups of them.
    """

    place: str
    fan_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMembers:
    """Processes behind one node server."""

    node: Node
    members: tuple[UnionMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRequest:
    """One statement over one table of the processes of several machines.

    Attributes:
        own: The question, with the processes of the one that is asked.
        nodes: The other machines.
        combine: The statement that makes of the parts of aggregates of several machines those of
            all; None where rows are asked for.
        is_repeated: Whether the statement itself is to run over the rows of several machines, too.
    """

    own: UnionRequest
    nodes: tuple[NodeMembers, ...]
    way: Way
    combine: str | None = None
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWork:
    """A `TreeRequest` as a node server hands it to the process that answers it.

    Attributes:
        token: What it was asked with, and asks the others with.
        listen: Where the node server listens, see `probing.messages.card.Card`.
    """

    request: TreeRequest
    token: str
    listen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccount:
    """What became of the processes of one node."""

    url: str
    members: tuple[UnionOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccounts:
    """What became of the processes of all nodes that were reached, the one asked first."""

    nodes: tuple[NodeAccount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKeys:
    """Which processes of one node server are asked, by the names of their run folders."""

    node: Node
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """Requests that are the same for many processes.

    Attributes:
        keys: The processes of the one that is asked.
        nodes: Those of other machines.
        timeout_s: What has no answer by then is left out.
    """

    readings: tuple[Reading, ...]
    keys: tuple[str, ...]
    nodes: tuple[NodeKeys, ...]
    way: Way
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """One answer.

    Attributes:
        key: The process; empty for the node itself.
        reading: Which of the readings, from 0.
        body: As it would have been sent, in base64.
    """

    key: str
    reading: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCollected:
    """The answers of one node; a process that gave none, or an error, is left out."""

    url: str
    answers: tuple[Collected, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectAnswer:
    """The answers of all nodes that were reached, the one asked first."""

    nodes: tuple[NodeCollected, ...]
