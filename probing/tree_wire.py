"""What travels where node servers are asked through other node servers.

Rules of this file: as in `probing.wire`. A node that an answer does not account for has not been
reached by who was asked, and is asked by who asks. The answer to a `TreeRequest` is an Arrow IPC
stream whose schema carries, as `NODES_KEY`, a `NodeAccounts`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .union_wire import UnionMember, UnionOutcome, UnionRequest
from .wire import QueryRequest

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
        listen: Where the node server listens, see `probing.card.Card`.
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
class Reading:
    """One request to every process of some nodes, or to the nodes themselves.

    Attributes:
        route: ``members`` of a node; of its processes ``acts``, ``armed``, ``backtrace``, ``jobs``,
            ``live``, ``query``, ``settings``, ``status`` or ``tables``.
        flags: The query parameters that are true.
        query: The body of ``query``.
        table: What ``live`` is asked for.
        wait_s: How long ``live`` may wait for what only the training can show.
    """

    route: str
    flags: tuple[str, ...] = ()
    query: QueryRequest | None = None
    table: str | None = None
    wait_s: float | None = None

    @classmethod
    def of_query(cls, sql: str, timeout_s: float) -> Reading:
        """A statement as `probing.client.Process.query` asks it."""
        return cls(route="query", query=QueryRequest(sql=sql, timeout_s=timeout_s))

    @property
    def names(self) -> dict[str, str]:
        """What stands in braces in the route's path."""
        return {} if self.table is None else {"table": self.table}

    @property
    def times(self) -> dict[str, float]:
        """The query parameters in seconds."""
        return {} if self.wait_s is None else {"wait_s": self.wait_s}


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
