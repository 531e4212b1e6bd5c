"""Who waits for whom, in which collective of which group.

Rules of this file: pure functions of what is on record. A rank waits for those members of the group
that have not come to the collective it is in; a chain of waits is followed to its end, and one
without an end is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .evidence import Call, Group, RankEvidence

_AWAITS = frozenset({"collective", "backward", "device", "gil", "stopped", "unknown", "waiting"})
"""What a thread may be seen to do while it waits for a collective that was issued before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A rank that is in a collective.

    Attributes:
        on: The members that have not come to it; none where all have.
        unseen: Those of which it is not known whether they have.
        members: All ranks of the group.
    """

    rank: int
    call: Call
    on: frozenset[int]
    unseen: frozenset[int] = frozenset()
    members: tuple[int, ...] = ()


def waits_of(ranks: Mapping[int, RankEvidence], world: Iterable[int]) -> dict[int, Wait]:
    """The wait of every rank that is in a collective, or has ended of having waited in it."""
    groups, world = all_groups(ranks, world), tuple(world)
    is_over = not any(evidence.is_alive for evidence in ranks.values())
    reached = {rank: reach(evidence.calls) for rank, evidence in ranks.items()}
    found = {}
    for rank, evidence in ranks.items():
        waits = []
        for call in _waited_in(evidence, is_over=is_over):
            members = _members(call, groups, ranks, world)
            others = [other for other in members if other != rank]
            if not call.is_collective:
                others = [call.peer] if call.peer is not None else []
            late = frozenset(o for o in others if _is_late(o, call, ranks, reached))
            unseen = frozenset(o for o in late if not _is_known(ranks.get(o)))
            waits.append(
                Wait(rank=rank, call=call, on=late - unseen, unseen=unseen, members=tuple(members))
            )
        if waits:  # one that all have come to is over soon, or waits for those before it
            found[rank] = next((wait for wait in waits if _blocked(wait)), waits[0])
    return found


def awaited(evidence: RankEvidence) -> Call | None:
    """The collective that a rank waits in: the oldest that is open, unless it does something else.

    What was issued asynchronously is open while the rank does its work.
    """
    return next(iter(_candidates(evidence)), None)


def _waited_in(evidence: RankEvidence, *, is_over: bool) -> list[Call]:
    """The collectives that a rank waits in, or that it waited in when it ended of that.

    Args:
        is_over: Whether all ranks have ended: the launcher has then ended the last without a word.
    """
    if evidence.gave_up or (is_over and evidence.is_wordless):
        last = evidence.calls[-1:]
        return [call for call in last if call.is_open or call.error is not None]
    return _candidates(evidence) if evidence.is_alive else []


def _candidates(evidence: RankEvidence) -> list[Call]:
    """The collectives that a rank may be waiting in, the oldest first."""
    kind = evidence.doing.kind if evidence.doing else "unknown"
    opened = (c for c in evidence.calls if c.is_open and (not c.is_async or kind in _AWAITS))
    return sorted(opened, key=lambda call: -(call.age_s or 0.0))


def reach(calls: Sequence[Call]) -> dict[str, int]:
    """The number of the last collective of each group that a rank has come to."""
    found: dict[str, int] = {}
    for call in calls:
        if call.is_collective:
            found[call.group] = max(found.get(call.group, 0), call.seq)
    return found


def all_groups(ranks: Mapping[int, RankEvidence], world: Iterable[int]) -> dict[str, set[int]]:
    """The members of every group, by what all ranks say of it."""
    size, world = len(tuple(world)), tuple(world)
    found: dict[str, set[int]] = {}
    for rank, evidence in ranks.items():
        for group in evidence.groups:
            found.setdefault(group.name, set()).update(_named(group, size, world), {rank})
        for call in evidence.calls:
            found.setdefault(call.group, set()).add(rank)
    return found


def chain_ends(waits: Mapping[int, Wait]) -> set[int]:
    """The ranks that others wait for, and that wait for no collective of others themselves."""
    wanted = {rank for wait in waits.values() for rank in wait.on | wait.unseen}
    return {rank for rank in wanted if rank not in waits or not _blocked(waits[rank])}


def cycle(waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """The ranks of a circle of waits, the lowest first; none where every chain has an end.

    A rank waits for all that are late, so no other rank's coming can end a circle.
    """
    left = {rank: set(wait.on) & set(waits) for rank, wait in waits.items()}
    while ends := {rank for rank, others in left.items() if not others}:
        left = {rank: others - ends for rank, others in left.items() if rank not in ends}
    if not left:
        return ()
    path: list[int] = []
    rank = min(left)
    while rank not in path:
        path.append(rank)
        rank = min(left[rank])
    loop = path[path.index(rank) :]
    first = loop.index(min(loop))
    return tuple(loop[first:] + loop[:first])


def victims_of(waits: Mapping[int, Wait], causes: Iterable[int]) -> tuple[int, ...]:
    """The ranks that only wait."""
    blamed = set(causes)
    return tuple(sorted(rank for rank in waits if rank not in blamed))


def _blocked(wait: Wait) -> bool:
    return bool(wait.on or wait.unseen)


def _named(group: Group, size: int, world: tuple[int, ...]) -> tuple[int, ...]:
    """The members of a group; those of one as large as the job are all ranks."""
    if group.ranks:
        return group.ranks
    return world if group.size == size else ()


def _members(
    call: Call,
    groups: Mapping[str, set[int]],
    ranks: Mapping[int, RankEvidence],
    world: tuple[int, ...],
) -> list[int]:
    """The members of the group of a call; a group that nobody describes is that of all ranks."""
    described = any(g.name == call.group for e in ranks.values() for g in e.groups)
    return sorted(groups.get(call.group, set()) | (set() if described else set(world)))


def _is_late(
    rank: int,
    call: Call,
    ranks: Mapping[int, RankEvidence],
    reached: Mapping[int, Mapping[str, int]],
) -> bool:
    """Whether a member has not come to a collective, as far as is known."""
    evidence = ranks.get(rank)
    if not call.is_collective:
        counterpart = awaited(evidence) if evidence is not None else None
        return counterpart is None or counterpart.is_collective or counterpart.op[:4] == call.op[:4]
    return reached.get(rank, {}).get(call.group, 0) < call.seq


def _is_known(evidence: RankEvidence | None) -> bool:
    """Whether its record can be relied on: it was read, or it is known to have ended."""
    return evidence is not None and evidence.state not in {"missing", "unreachable"}
