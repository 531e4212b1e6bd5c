"""Who a process is.

Rules of this file: what the agent must know of the wire at its start, and no more; the rest is in
`probing.wire` and is loaded with the server. Making a dataclass takes a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Card:
    """Who a process is; the file ``card.json`` of its run folder and the answer to ``status``.

    Attributes:
        start_time: Clock ticks after boot at which the process started.
        pid_namespace: Inode of the pid namespace that `pid` belongs to.
        listen: ``host:port`` of its TCP listener, if it has one.
        problems: What the agent could not do, one sentence each.
    """

    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int
    uid: int
    host: str
    command: tuple[str, ...]
    executable: str
    python: str
    version: str
    started_ns: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    listen: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """The answer to a ping."""

    pid: int
