"""What travels about the processes of a machine."""

from __future__ import annotations

from ..frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMember:
    """One process of a node server's machine.

    Attributes:
        key: The name of its run folder; what stands in ``/v1/ranks/{key}/...``.
        is_alive: Whether it runs.
        state: What it does, as in `probing list`.
        step: The training step that it is in, or had last finished.
        stalled_s: How long it has made no progress although it should.
    """

    key: str
    rank: int | None
    local_rank: int | None
    world_size: int | None
    job: str | None
    attempt: int
    pid: int
    host: str
    started_ns: int
    is_alive: bool
    state: str | None = None
    step: int | None = None
    stalled_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersAnswer:
    """All processes of a node server's machine.

    Attributes:
        host: What the machine calls itself.
        pid: The node server's own.
    """

    host: str
    pid: int
    version: str
    members: tuple[NodeMember, ...]
