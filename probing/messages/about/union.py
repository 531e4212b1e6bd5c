"""What travels between who asks many ranks and the node servers that gather them.

Rules of this file: as in `probing.messages.common`. The answer is an Arrow IPC stream whose schema
carries, as `MEMBERS_KEY`, a `UnionOutcomes`.
"""

from __future__ import annotations

from ..frozen import dataclass

MEMBERS_KEY = b"probing.members"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionMember:
    """A process whose rows are wanted, and what its added columns hold.

    Attributes:
        key: The name of its run folder.
    """

    key: str
    rank: int | None
    host: str
    pid: int | None
    job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionRequest:
    """One statement over one table of several processes of a machine.

    Attributes:
        table: The table's full name.
        columns: What the statement reads, without the added columns.
        sql: The statement over the table with the added columns.
        max_bytes: The largest answer.
    """

    members: tuple[UnionMember, ...]
    table: str
    columns: tuple[str, ...]
    sql: str
    timeout_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionOutcome:
    """What became of one process.

    Attributes:
        state: As of `probing.cluster.job.outcomes.Outcome`.
        error: The error as it travels, in JSON; None where there is none.
    """

    key: str
    state: str
    seconds: float
    error: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionOutcomes:
    """What became of all of them."""

    members: tuple[UnionOutcome, ...]
