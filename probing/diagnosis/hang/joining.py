"""The verdicts on ranks that make a process group, wait for a key of the store, or for a message.

Rules of this file: pure functions. None of these waits has a number by which ranks could be
compared, so what the stacks show is told of both sides, each with its line. Where
all are in the wrong, all are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...messages.frozen import dataclass
from .case import Case
from .evidence import Doing, Kind
from .seen.work import is_at_work
from .waiting import chain_ends, wanted
from .words.texts import at, call_text, ranks_text, seconds, sentence

_MOST_PLACES = 3
_UNSEEN = frozenset({"missing", "unreachable"})
_FIRST = "init_process_group"
_LIST = re.compile(r"[\[({][\d, ]+[\])}]")
_RANGE = re.compile(r"range\(\d+, \d+(, \d+)?\)")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule has found, for a verdict to be made of."""

    kind: Kind
    causes: tuple[int, ...]
    victims: tuple[int, ...]
    headline: str
    confidence: str


def joining(case: Case) -> Finding | None:
    """Ranks make a process group that others do not make, or another one."""
    joins = _doing(case, "joining")
    if not joins:
        return None
    members = _members(case, joins)
    others = [rank for rank in members if rank not in joins]
    if not others:
        return _other_groups(case, joins)
    if all(rank not in case.ranks for rank in others):
        return None  # of those that were not asked nothing is known
    doing = case.ranks[joins[0]].doing
    of = f" of ranks {doing.group_ranks}" if doing and _ranks_in(doing) else ""
    here, what = _places(case, joins), f"{_function(doing)}{of}"
    late = [rank for rank in others if rank not in case.waits]
    is_tie = not late and len(others) == len(joins)
    if not late and len(others) > len(joins):
        causes, text = joins, f"No other rank has come to {what}: {here}"
    else:
        causes = late or others
        text = f"{_subject(causes, 'has', 'have')} not come to {what}: {here}"
    there = _places(case, [rank for rank in case.world if rank not in joins])
    sure = "high: all stacks show it" if not _unknown(case) else "medium: by the stacks"
    if is_tie:
        sure = "medium: as many of its members are there as wait elsewhere"
    return Finding(
        kind="not_joined",
        causes=tuple(causes),
        victims=tuple(
            r for r in case.living if r not in causes and (r in joins or r in case.waits)
        ),
        headline=f"{text}; {there}.",
        confidence=sure,
    )


def _members(case: Case, joins: Sequence[int]) -> tuple[int, ...]:
    """The ranks that those which join wait for: the members of their groups, or all.

    Who is no member goes past `new_group`, so that where it is says nothing of it.
    """
    found = set[int]()
    for rank in joins:
        asked = _ranks_in(case.ranks[rank].doing)
        if asked is None:
            return case.world
        found |= asked
    return tuple(rank for rank in case.world if rank in found)


def _ranks_in(doing: Doing | None) -> set[int] | None:
    """The ranks that a group is made of, where they are told and not those of all."""
    text = (doing.group_ranks if doing else None) or ""
    if _RANGE.fullmatch(text):
        return set(range(*map(int, _NUMBER.findall(text))))
    return set(map(int, _NUMBER.findall(text))) if _LIST.fullmatch(text) else None


def store(case: Case) -> Finding | None:
    """Ranks wait for a key of the store that nobody has set who was seen."""
    waiting = _doing(case, "store")
    stopped = {r for r in case.living if case.state(r) == "stopped"}
    living = [r for r in case.living if r not in stopped or case.ranks[r].is_debugged]
    late = wanted(case.waits.values())
    free = set(living) - set(waiting) - set(case.waits)
    if not waiting or free or not late <= set(waiting):
        return None
    victims = tuple(sorted(set(case.waits) - set(waiting)))
    rest = f"; meanwhile {_places(case, victims)}" if victims else ""
    where = sentence(_places(case, waiting))[:-1]
    unseen = [rank for rank in case.world if case.state(rank) in _UNSEEN]
    if unseen:
        return Finding(
            kind="unseen",
            causes=(),
            victims=tuple(sorted({*waiting, *victims})),
            headline=f"{where}, which {ranks_text(unseen)} of the job may set{rest}.",
            confidence=f"low: nothing is known of {ranks_text(unseen)}",
        )
    return Finding(
        kind="store",
        causes=tuple(waiting),
        victims=victims,
        headline=f"{where}, which nobody has set{rest}.",
        confidence="high: nobody is left who could set it",
    )


def file_lock(case: Case) -> Finding | None:
    """A rank waits for the lock of a file that a rank has which waits for it."""
    for rank in sorted(chain_ends(case.waits) & set(case.ranks)):
        evidence = case.ranks[rank]
        for holder, wait in case.waits.items():
            other = case.ranks[holder]
            is_holder = evidence.lock_pid is not None and other.pid == evidence.lock_pid
            if not is_holder or other.host != evidence.host or rank not in wait.late:
                continue
            doing = evidence.doing
            where = f", at {doing.where}" if doing is not None and doing.where else ""
            return Finding(
                kind="deadlock",
                causes=(holder, rank),
                victims=tuple(sorted(set(case.waits) - {holder})),
                headline=f"Deadlock: rank {holder} has the lock of a file and waits in"
                f" {call_text(wait.call)}{at(wait.call)} for rank {rank}; rank {rank} waits for"
                f" that lock{where}.",
                confidence="high: the kernel tells who has the lock, the record who waits",
            )
    return None


def unmatched(case: Case) -> Finding | None:
    """A rank waits for a message of another, which waits elsewhere itself."""
    for rank, wait in sorted(case.waits.items()):
        call = wait.call
        peer = case.ranks.get(call.peer) if call.peer is not None else None
        if call.is_collective or peer is None or not peer.is_alive or call.peer not in wait.on:
            continue
        other = case.waits.get(call.peer) if call.peer is not None else None
        if other is None or call.peer is None or not other.call.is_collective:
            continue
        if other.on and rank not in other.on:
            continue  # the other waits for somebody else, who is the cause
        verb = "send to" if call.op == "recv" else "receive from"
        where = f"{call_text(other.call)}{at(other.call)}"
        first = f"Rank {rank} waits in {call_text(call)}{at(call)}, for {seconds(call.age_s)}"
        return Finding(
            kind="unmatched",
            causes=tuple(sorted((rank, call.peer))),
            victims=tuple(sorted(set(case.waits) - {rank, call.peer})),
            headline=f"{first}, and rank {call.peer} does not {verb} it: it waits in {where}.",
            confidence="high: both waits are on record",
        )
    return None


def doubtful(case: Case) -> Finding | None:
    """Whether the other side of a message has come is not sure: nobody that stands still is named.

    A peer that gets on is what is waited for, whether it has come to this message or not.
    """
    waits = [(rank, wait.call) for rank, wait in case.waits.items() if wait.is_doubtful]
    if not waits:
        return None
    peers = sorted({call.peer for _, call in waits if call.peer is not None})
    causes = tuple(peers) if all(is_at_work(case.ranks[peer]) for peer in peers) else ()
    rank, call = max(waits, key=lambda found: found[1].age_s or 0.0)
    verb = "sent" if call.op == "recv" else "taken"
    return Finding(
        kind="missing" if causes else "unknown",
        causes=causes,
        victims=tuple(sorted(set(case.waits) - set(causes))),
        headline=f"Rank {rank} waits in {call_text(call)}{at(call)}, for {seconds(call.age_s)},"
        f" which by its number rank {call.peer} has {verb}; {_places(case, [call.peer or 0])}.",
        confidence="low: the numbers of messages agree only if both agents were there from the"
        " first one",
    )


def _other_groups(case: Case, joins: Sequence[int]) -> Finding:
    """All ranks make groups, and not the same."""
    same: dict[str | None, list[int]] = {}
    for rank in joins:
        doing = case.ranks[rank].doing
        same.setdefault(doing.group_ranks if doing else None, []).append(rank)
    sides = sorted(same.values(), key=lambda ranks: ranks[0])
    texts = [f"{ranks_text(ranks)} {_makes(case.ranks[ranks[0]].doing)}" for ranks in sides]
    texts += _made_alone(case, joins)
    if len(set(same) - {None}) < 2 and len(texts) == len(sides):
        return Finding(
            kind="not_joined",
            causes=(),
            victims=tuple(joins),
            headline=f"All ranks join, and none gets on: {_places(case, joins)}. Either they do not"
            " make the same groups, or they do not reach each other.",
            confidence="medium: by the stacks, which do not tell the groups apart",
        )
    return Finding(
        kind="not_joined",
        causes=tuple(joins),  # who is in no group goes past it, so that most are not right
        victims=(),
        headline=f"The ranks do not make the same process group: {'; '.join(texts)}. All ranks must"
        " make all groups in the same order.",
        confidence="high: the groups are on the stacks and on record; who of them is right is not",
    )


def _made_alone(case: Case, joins: Sequence[int]) -> list[str]:
    """The groups that a rank has made, and another of their members has not."""
    made = {
        rank: {(group.name, group.ranks) for group in case.ranks[rank].groups if group.ranks}
        for rank in joins
    }
    lacking: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for key in sorted(set().union(*made.values())):
        lacking[key] = [rank for rank in joins if rank in key[1] and key not in made[rank]]
    return [
        f"{ranks_text(without)} {'has' if len(without) == 1 else 'have'} not made group {name} of"
        f" {ranks_text(members)}, as {ranks_text(set(members) & set(joins) - set(without))} did"
        for (name, members), without in lacking.items()
        if without
    ][:_MOST_PLACES]


def _makes(doing: Doing | None) -> str:
    what = f" of ranks {doing.group_ranks}" if doing and doing.group_ranks else ""
    return f"in {_function(doing)}{what}{f' at {doing.where}' if doing and doing.where else ''}"


def _doing(case: Case, kind: str) -> list[int]:
    """The living ranks that do something of a kind, outside of any collective on record."""
    return [
        rank
        for rank in case.living
        if rank not in case.waits and (doing := case.ranks[rank].doing) and doing.kind == kind
    ]


def _places(case: Case, ranks: Iterable[int]) -> str:
    """Where ranks are, those that are at the same place together."""
    same: dict[str, list[int]] = {}
    for rank in ranks:
        same.setdefault(_place(case, rank), []).append(rank)
    found = sorted(same.items(), key=lambda item: -len(item[1]))
    texts = [f"{_subject(those).lower()} {words}" for words, those in found[:_MOST_PLACES]]
    more = f", and others at {len(found) - _MOST_PLACES} more places"
    return ", ".join(texts) + (more if len(found) > _MOST_PLACES else "")


def _place(case: Case, rank: int) -> str:
    """What one rank does and where, in words that fit behind `is`."""
    if rank in case.waits:
        call = case.waits[rank].call
        return f"waiting in {call_text(call)}{at(call)}"
    evidence = case.ranks.get(rank)
    if evidence is None or evidence.doing is None:
        return {"dead": "dead"}.get(case.state(rank), "not to be seen")
    doing = evidence.doing
    words = doing.words.removeprefix("is ")
    is_told = doing.is_deadlock or not doing.where
    return words if is_told else f"{words} at {doing.where}"


def _subject(ranks: Sequence[int], one: str = "is", more: str = "are") -> str:
    return f"{sentence(ranks_text(ranks))[:-1]} {one if len(ranks) == 1 else more}"


def _function(doing: Doing | None) -> str:
    """The function of torch that makes the group."""
    words = doing.words if doing else ""
    _, found, rest = words.partition("(")
    return rest.rstrip(")") if found else _FIRST


def _unknown(case: Case) -> bool:
    """Whether nothing is known of a rank."""
    return any(rank not in case.ranks or case.ranks[rank].doing is None for rank in case.world)
