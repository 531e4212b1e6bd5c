"""Who waits for whom, in which collective of which group.

Rules of this file: pure functions of what is on record. A rank waits for those members of the group
that have not come to the collective it is in, or for the peer of its message; a chain of waits is
followed to its end, and one without an end is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...messages.frozen import dataclass
from .evidence import POINT_TO_POINT, Call, Group, RankEvidence

_AWAITS = frozenset(
    {"collective", "backward", "device", "gil", "idle", "stopped", "unknown", "waiting"}
)
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
        is_for_any: Whether any of them can end it, as a message from whomever does.
        is_doubtful: Whether the peer of a message is past its other side if both have counted the
            messages alike, which agents that came to them one after the other have not.
    """

    rank: int
    call: Call
    late: frozenset[int]
    on: frozenset[int]
    unseen: frozenset[int] = frozenset()
    members: tuple[int, ...] = ()
    is_for_any: bool = False
    is_doubtful: bool = False


def waits_of(ranks: Mapping[int, RankEvidence], world: Iterable[int]) -> dict[int, Wait]:
    """The wait of every rank that is in a collective, or has ended of having waited in it."""
    look = _Look(ranks, tuple(world))
    is_over = not any(evidence.is_alive for evidence in ranks.values())
    found = {}
    for rank, evidence in ranks.items():
        waits = [look.wait(rank, call) for call in _waited_in(evidence, is_over=is_over)]
        if waits:  # one that all have come to is over soon, or waits for those before it
            late = (wait for wait in waits if wait.late)
            found[rank] = min(late, key=_doubts, default=waits[0])
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
        is_for_any = not call.is_collective and call.peer is None
        is_doubtful = False
        if call.is_collective:
            late, on, unseen = self._of_collective(call)
        else:
            late, on, unseen = self._sets(self._of_message(rank, call))
            is_doubtful = bool(late) and self._may_have_come(rank, call)
            on = frozenset() if is_doubtful else on
        return Wait(
            rank=rank,
            call=call,
            late=late,
            on=on,
            unseen=unseen,
            members=self._members_of(call.group),
            is_for_any=is_for_any,
            is_doubtful=is_doubtful,
        )

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

    def _of_message(self, rank: int, call: Call) -> list[int]:
        """Of a send or recv: its peer, unless that waits in the counterpart.

        Of one from any rank, those that are free to send; where none is, all that may be meant.
        """
        if call.peer is not None:
            return [] if self._has_come(call.peer, rank, call) else [call.peer]
        others = [member for member in self._members_of(call.group) if member != rank]
        if any(self._sends_to(other, rank) for other in others):
            return []
        free = [other for other in others if self._is_free(other)]
        return free or [other for other in others if not self._is_done(other)] or others

    def _has_come(self, peer: int, rank: int, call: Call) -> bool:
        """Whether a peer waits in the counterpart of a message of a rank, whatever its number."""
        evidence = self._ranks.get(peer)
        calls = _candidates(evidence) if evidence is not None else []
        return any(_is_other_side(other, rank, call) for other in calls)

    def _may_have_come(self, rank: int, call: Call) -> bool:
        """Whether its peer has come to the counterpart by the numbers of messages.

        One that was begun long ago is open on record until the peer asks for its work.
        """
        evidence = self._ranks.get(call.peer) if call.peer is not None else None
        return evidence is not None and any(
            other.is_open if other.peer is None else other.seq >= call.seq
            for other in evidence.calls
            if _is_other_side(other, rank, call)
        )

    def _sends_to(self, other: int, rank: int) -> bool:
        """Whether a rank waits in a send to another."""
        evidence = self._ranks.get(other)
        calls = _candidates(evidence) if evidence is not None else []
        return any(call.op == "send" and call.peer == rank for call in calls)

    def _is_free(self, rank: int) -> bool:
        """Whether a rank may come to any collective or message, as far as is known."""
        evidence = self._ranks.get(rank)
        return evidence is None or (evidence.state != "dead" and awaited(evidence) is None)

    def _is_done(self, rank: int) -> bool:
        evidence = self._ranks.get(rank)
        return evidence is not None and evidence.ended_well

    def _sets(self, late: Iterable[int]) -> tuple[frozenset[int], ...]:
        everyone = frozenset(late)
        unseen = frozenset(rank for rank in everyone if not _is_known(self._ranks.get(rank)))
        return everyone, everyone - unseen if unseen else everyone, unseen


def _is_other_side(other: Call, rank: int, call: Call) -> bool:
    """Whether a call of the peer of a rank's message is of the other kind and between these two."""
    ops = {other.op, call.op}
    return ops == POINT_TO_POINT and other.group == call.group and other.peer in {rank, None}


def _doubts(wait: Wait) -> tuple[bool, bool]:
    """Whether it may be over, or for a message on its way, which a rank mostly does not await."""
    return wait.is_doubtful, wait.call.is_async and wait.call.op == "send"


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
    """All ranks that somebody waits for, without doubt."""
    return set().union(*{wait.late for wait in waits if not wait.is_doubtful})


def waiting_for(waits: Iterable[Wait], ranks: Iterable[int]) -> list[Wait]:
    """Those of some waits that are for any of some ranks, without doubt."""
    named = frozenset(ranks)
    is_for: dict[frozenset[int], bool] = {}
    for wait in (waits := tuple(waits)):
        if wait.late not in is_for:
            is_for[wait.late] = not named.isdisjoint(wait.late)
    return [wait for wait in waits if is_for[wait.late] and not wait.is_doubtful]


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
    waiters: dict[tuple[frozenset[int], bool], list[int]] = {}
    for rank, wait in waits.items():
        waiters.setdefault((wait.on, wait.is_for_any), []).append(rank)
    left = {key: _needed(key, waits) for key in waiters}
    inside: dict[int, list[tuple[frozenset[int], bool]]] = {}
    for key in waiters:
        for rank in key[0]:
            inside.setdefault(rank, []).append(key)
    ends = [rank for key, number in left.items() if not number for rank in waiters[key]]
    gone = set(ends)
    while ends:
        for key in inside.get(ends.pop(), ()):
            left[key] -= 1
            if not left[key]:
                gone.update(waiters[key])
                ends += waiters[key]
    return set(waits) - gone


def _needed(key: tuple[frozenset[int], bool], waits: Mapping[int, Wait]) -> int:
    """How many of those that are waited for must come, and wait themselves."""
    ranks, is_for_any = key
    waiting = sum(rank in waits for rank in ranks)
    return int(waiting == len(ranks) > 0) if is_for_any else waiting


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
