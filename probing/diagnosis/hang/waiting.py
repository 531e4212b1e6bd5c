"""Who waits for whom, in which collective of which group.

Rules of this file: pure functions of what is on record. A rank waits for those members of the group
that have not come to the collective it is in; a chain of waits is followed to its end, and one
without an end is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...messages.frozen import dataclass
from .evidence import POINT_TO_POINT, Call, Group, RankEvidence

_AWAITS = frozenset({"collective", "backward", "device", "gil", "stopped", "unknown", "waiting"})
"""What a thread may be seen to do while it waits for a collective that was issued before."""
ONLY_WAIT = frozenset({"collective", "joining", "backward"})
"""What ranks do that wait for others, where no collective is on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A rank that is in a collective.

    All that are in the same one share these sets, and so whoever walks over many waits looks at
    each set once.

    Attributes:
        late: The members that have not come to it, as far as is known; none where all have.
        on: Those of them that are known not to have come.
        unseen: Those of which it is not known whether they have.
        members: All ranks of the group.
    """

    rank: int
    call: Call
    late: frozenset[int]
    on: frozenset[int]
    unseen: frozenset[int] = frozenset()
    members: tuple[int, ...] = ()


def waits_of(ranks: Mapping[int, RankEvidence], world: Iterable[int]) -> dict[int, Wait]:
    """The wait of every rank that is in a collective, or has ended of having waited in it."""
    look = _Look(ranks, tuple(world))
    is_over = not any(evidence.is_alive for evidence in ranks.values())
    found = {}
    for rank, evidence in ranks.items():
        waits = [look.wait(rank, call) for call in _waited_in(evidence, is_over=is_over)]
        if waits:  # one that all have come to is over soon, or waits for those before it
            found[rank] = next((wait for wait in waits if wait.late), waits[0])
    return found


class _Look:
    """Who is late for what; every collective of a group is looked at once."""

    def __init__(self, ranks: Mapping[int, RankEvidence], world: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._world = world
        self._groups = all_groups(ranks, world)
        self._described = {group.name for e in ranks.values() for group in e.groups}
        self._reached = {rank: reach(evidence.calls) for rank, evidence in ranks.items()}
        self._members: dict[str, tuple[int, ...]] = {}
        self._late: dict[tuple[str, int], tuple[frozenset[int], ...]] = {}

    def wait(self, rank: int, call: Call) -> Wait:
        """The wait of a rank in a call."""
        late, on, unseen = self._of_collective(call) if call.is_collective else self._of_peer(call)
        members = self._members_of(call.group)
        return Wait(rank=rank, call=call, late=late, on=on, unseen=unseen, members=members)

    def _members_of(self, name: str) -> tuple[int, ...]:
        """The members of a group; one that nobody describes is that of all ranks."""
        if name not in self._members:
            others = set() if name in self._described else set(self._world)
            self._members[name] = tuple(sorted(self._groups.get(name, set()) | others))
        return self._members[name]

    def _of_collective(self, call: Call) -> tuple[frozenset[int], ...]:
        key = call.group, call.seq
        if key not in self._late:
            members = self._members_of(call.group)
            self._late[key] = self._sets(
                rank
                for rank in members
                if self._reached.get(rank, {}).get(call.group, 0) < call.seq
            )
        return self._late[key]

    def _of_peer(self, call: Call) -> tuple[frozenset[int], ...]:
        """Of a send or recv: its peer, unless that is in the counterpart."""
        evidence = self._ranks.get(call.peer) if call.peer is not None else None
        other = awaited(evidence) if evidence is not None else None
        meets = other is not None and not other.is_collective and other.op[:4] != call.op[:4]
        return self._sets([] if meets or call.peer is None else [call.peer])

    def _sets(self, late: Iterable[int]) -> tuple[frozenset[int], ...]:
        everyone = frozenset(late)
        unseen = frozenset(rank for rank in everyone if not _is_known(self._ranks.get(rank)))
        return everyone, everyone - unseen if unseen else everyone, unseen


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
        if call.op not in POINT_TO_POINT and call.seq > found.get(call.group, -1):
            found[call.group] = call.seq
    return found


def all_groups(ranks: Mapping[int, RankEvidence], world: Iterable[int]) -> dict[str, set[int]]:
    """The members of every group, by what all ranks say of it."""
    world = tuple(world)
    found: dict[str, set[int]] = {}
    seen = set()
    for rank, evidence in ranks.items():
        for group in evidence.groups:
            members = found.setdefault(group.name, set())
            members.add(rank)
            if (group.name, id(group.ranks)) not in seen:  # ranks that say the same share it
                seen.add((group.name, id(group.ranks)))
                members.update(_named(group, len(world), world))
        for name in {call.group for call in evidence.calls}:
            found.setdefault(name, set()).add(rank)
    return found


def wanted(waits: Iterable[Wait]) -> set[int]:
    """All ranks that somebody waits for."""
    return set().union(*{wait.late for wait in waits})


def waiting_for(waits: Iterable[Wait], ranks: Iterable[int]) -> list[Wait]:
    """Those of some waits that are for any of some ranks."""
    named = frozenset(ranks)
    is_for: dict[frozenset[int], bool] = {}
    for wait in (waits := tuple(waits)):
        if wait.late not in is_for:
            is_for[wait.late] = not named.isdisjoint(wait.late)
    return [wait for wait in waits if is_for[wait.late]]


def chain_ends(waits: Mapping[int, Wait]) -> set[int]:
    """The ranks that others wait for, and that wait for no collective of others themselves."""
    named = wanted(waits.values())
    return {rank for rank in named if rank not in waits or not waits[rank].late}


def cycle(waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """The ranks of a circle of waits, the lowest first; none where every chain has an end.

    A rank waits for all that are late, so no other rank's coming can end a circle.
    """
    left = _endless(waits)
    if not left:
        return ()
    nearest: dict[frozenset[int], int] = {}
    path: dict[int, int] = {}
    rank = min(left)
    while rank not in path:
        path[rank] = len(path)
        on = waits[rank].on
        if on not in nearest:
            nearest[on] = min(on & left)
        rank = nearest[on]
    loop = list(path)[path[rank] :]
    first = loop.index(min(loop))
    return tuple(loop[first:] + loop[:first])


def _endless(waits: Mapping[int, Wait]) -> set[int]:
    """The ranks whose waiting no other rank's coming can end: all others are taken away."""
    waiters: dict[frozenset[int], list[int]] = {}
    for rank, wait in waits.items():
        waiters.setdefault(wait.on, []).append(rank)
    left = {on: sum(rank in waits for rank in on) for on in waiters}
    inside: dict[int, list[frozenset[int]]] = {}
    for on in waiters:
        for rank in on:
            inside.setdefault(rank, []).append(on)
    ends = [rank for on, number in left.items() if not number for rank in waiters[on]]
    gone = set(ends)
    while ends:
        for on in inside.get(ends.pop(), ()):
            left[on] -= 1
            if not left[on]:
                gone.update(waiters[on])
                ends += waiters[on]
    return set(waits) - gone


def victims_of(waits: Mapping[int, Wait], causes: Iterable[int]) -> tuple[int, ...]:
    """The ranks that only wait."""
    blamed = set(causes)
    return tuple(sorted(rank for rank in waits if rank not in blamed))


def _named(group: Group, size: int, world: tuple[int, ...]) -> tuple[int, ...]:
    """The members of a group; those of one as large as the job are all ranks."""
    if group.ranks:
        return group.ranks
    return world if group.size == size else ()


def _is_known(evidence: RankEvidence | None) -> bool:
    """Whether its record can be relied on: it was read, or it is known to have ended."""
    return evidence is not None and evidence.state not in {"missing", "unreachable"}
