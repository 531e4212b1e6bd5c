"""Who belongs to a job: what a finding consists of.

Rules of this file: records and pure functions; nothing is looked for here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from ...messages import rank_paths
from ...messages.card import Card
from ...messages.frozen import dataclass
from .rank_sets import MOST_RANKS, rank_set


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of a job, or a rank that should be there.

    It says itself which rank it is, and of how many: a number that cannot be is none.

    Attributes:
        rank: None where the launcher gave it none.
        host: What its machine calls itself; empty where that is not known.
        attempt: How often the launcher had started the job anew.
        endpoint: What `probing.connect` takes.
        via: The node server that it is reached through.
        state: ``missing``: it was expected and is not seen, or its address does not answer.
        is_alive: Whether the process runs, as far as its machine could tell; one that has ended
            still answers from its record.
        started_ns: When its agent started.
        is_proven: Whether who told of it was named by the user or has shown a certificate.
        state_word: What its machine says that it does, as in `probing list`; None where nobody
            looked.
        step: The training step that it was in, or had last finished.
    """

    rank: int | None
    host: str
    pid: int | None
    world_size: int | None
    local_rank: int | None = None
    job: str | None = None
    attempt: int = 0
    endpoint: str
    via: str | None = None
    state: Literal["seen", "missing"] = "seen"
    is_alive: bool | None = None
    started_ns: int = 0
    is_proven: bool = True
    state_word: str | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        for name in ("rank", "local_rank", "world_size"):
            number = getattr(self, name)
            if number is not None and not 0 <= number <= MOST_RANKS:
                object.__setattr__(self, name, None)

    @property
    def target(self) -> str:
        """What a command takes for this one, of whatever else runs."""
        is_here = self.via is None and self.endpoint.startswith("/")
        if self.rank is not None and self.job is not None and is_here:
            return rank_paths.of_job(self.rank, self.job)
        return str(self.pid) if is_here and self.pid is not None else self.endpoint

    @property
    def name(self) -> str:
        """What people call it: its rank, else its pid, else its endpoint."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {self.pid}" if self.pid is not None else self.endpoint


def names_of(members: Sequence[Member]) -> str:
    """Members as people call them, ranks as a set."""
    ranks = {member.rank for member in members if member.rank is not None}
    words = [f"rank{'s' if len(ranks) > 1 else ''} {rank_set(ranks)}"] if ranks else []
    return ", ".join([*words, *(member.name for member in members if member.rank is None)])


def jobs_among(members: Iterable[Member]) -> tuple[list[list[Member]], list[Member]]:
    """The ranks of each job, and the processes that are by themselves."""
    jobs: dict[tuple[str | None, int], list[Member]] = {}
    alone = []
    for member in members:
        if member.rank is None or (member.world_size or 1) == 1:
            alone.append(member)
        else:
            jobs.setdefault((member.job, member.attempt), []).append(member)
    return list(jobs.values()), alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What was found behind some endpoints.

    Attributes:
        label: The endpoints as the user wrote them.
        job: The one job that all of it belongs to; None for none or several.
        world_size: How many ranks that job has.
        members: By rank, those without one behind; the missing ones among them.
        notes: What a person should know about how this was found.
        mixed: Which of the endpoints stand for more than one job, or process of none.
    """

    label: str
    job: str | None
    world_size: int | None
    members: tuple[Member, ...]
    notes: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()

    @property
    def seen(self) -> tuple[Member, ...]:
        """Those that can be asked."""
        return tuple(member for member in self.members if member.state == "seen")


def member_of(card: Card, endpoint: str, *, is_alive: bool) -> Member:
    """The member that a card describes."""
    return Member(
        rank=card.rank,
        host=card.host,
        pid=card.pid,
        world_size=card.world_size,
        local_rank=card.local_rank,
        job=card.job,
        attempt=card.attempt,
        endpoint=endpoint,
        is_alive=is_alive,
        started_ns=card.started_ns,
    )


def missing_member(rank: int, *, job: str | None, world_size: int | None, attempt: int) -> Member:
    """The row of a rank that was expected and is nowhere."""
    return Member(
        rank=rank,
        host="",
        pid=None,
        world_size=world_size,
        job=job,
        attempt=attempt,
        endpoint=f"rank:{rank}",
        state="missing",
    )


def in_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """By rank, those without one behind; ranks of several jobs by job."""

    def key(member: Member) -> tuple[str, bool, int, str, int]:
        rank = member.rank
        return (member.job or "", rank is None, rank or 0, member.host, member.pid or 0)

    return tuple(sorted(members, key=key))
