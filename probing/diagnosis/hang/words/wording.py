"""The sentences of verdicts, and what is told of the ranks that they name.

Rules of this file: pure functions. A sentence names ranks as sets, the collective by its number in
its group, and lines of the job's own code; it says `so far` while that is not long enough to be a
hang.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ....stacks.waits import BY_DEBUGGER
from ..case import Case
from ..evidence import Call, Cause, RankEvidence
from ..mismatches import Mismatch
from ..processes import doing_words
from ..seen.work import is_asleep
from ..waiting import Wait, awaited, waiting_for
from .texts import SPINS, at, call_text, ranks_text, seconds, sentence, unrecorded_words

_MOST_SIDES = 4


def healthy(case: Case) -> str:
    """The headline when every rank makes progress."""
    steps = [e.step for e in case.ranks.values() if e.is_alive and e.step is not None]
    where = ""
    if steps:
        low, high = min(steps), max(steps)
        where = f", in step {low}" if low == high else f", in steps {low} to {high}"
    return f"No hang: {ranks_text(case.living)} moved while being looked at{where}."


def all_ended(case: Case) -> str:
    """All ranks have ended, and nothing says why."""
    return f"All {len(case.ranks)} ranks have ended; none of them left word of why."


def all_asked(case: Case, dead: Sequence[RankEvidence]) -> str:
    """All ranks have ended since one sender asked them to; when, is told of the first."""
    first = min(dead, key=lambda one: one.ended_ns or 0)
    words = (first.ending or "").partition(". ")[0].removeprefix("it ")
    return f"All {len(case.ranks)} ranks have ended: each {words}."


def ended_well(case: Case) -> str:
    """All ranks have ended, as they should, as far as anything tells."""
    untold = [rank for rank, evidence in case.ranks.items() if evidence.way == "untold"]
    if untold:
        return f"All {len(case.ranks)} ranks have ended; of {ranks_text(untold)} nothing tells how."
    return f"All {len(case.ranks)} ranks have ended in an orderly way."


def ended_by(case: Case, causes: Sequence[int]) -> str:
    """All ranks have ended, one of them first."""
    return f"All ranks have ended, {ranks_text(causes)} first: {_ending(case, causes[0])}."


def ended_before(case: Case, causes: Sequence[int]) -> str:
    """All ranks have ended, some of them before they came to where the others were."""
    waits = waiting_for(case.waits.values(), causes)
    where = max(waits, key=lambda wait: wait.call.age_s or 0.0, default=None)
    if where is None:
        return ended_by(case, causes)
    ranks = sorted(wait.rank for wait in waits)
    return (
        f"All ranks have ended. {sentence(ranks_text(causes))[:-1]} had not come to"
        f" {call_text(where.call)}{at(where.call)}, where {ranks_text(ranks)}"
        f" {'was' if len(ranks) == 1 else 'were'}: {_ending(case, causes[0])}."
    )


def by_torch(case: Case, causes: Sequence[int]) -> str:
    """An error of torch names ranks."""
    gone = [rank for rank, e in case.ranks.items() if e.gave_up and rank not in causes]
    words = _ending(case, gone[0]) if gone else "an error of torch says so"
    return f"{sentence(ranks_text(causes))[:-1]} did not come: {words}."


def mismatch(found: Mismatch) -> str:
    """Ranks do not agree on a collective."""
    sides = found.sides()
    verb = "call" if len(found.odd) > 1 else "calls"
    number = f"number {found.seq} of group {found.group}"
    if not found.usual:
        texts = [f"{ranks_text(ranks)}: {_one_side(call)}" for ranks, call in sides[:_MOST_SIDES]]
        texts += [f"and {len(sides) - _MOST_SIDES} more"] if len(sides) > _MOST_SIDES else []
        return (
            f"The ranks do not agree on the {found.aspect} of collective {number}, and none has a"
            f" majority: {'; '.join(texts)}."
        )
    odd = [_one_side(call) for ranks, call in sides[1:]][:_MOST_SIDES]
    return (
        f"{sentence(ranks_text(found.odd))[:-1]} {verb} another {found.aspect} in collective"
        f" {number}: {', '.join(odd)}, where {ranks_text(found.usual)} {_calls(found.usual)}"
        f" {_one_side(sides[0][1])}."
    )


def mismatch_confidence(found: Mismatch) -> str:
    """How sure a mismatch is."""
    if not found.usual:
        return "medium: that they differ is on record, but not who of them is right"
    if len(found.usual) < 2:
        return f"medium: one rank against {len(found.odd)}"
    return f"high: {len(found.usual)} ranks agree, and what each called is on record"


def usual_call(found: Mismatch) -> str | None:
    """What the majority does."""
    if not found.usual:
        return None
    call = found.calls[found.usual[0]]
    return f"{call_text(call)}{at(call)}"


def deadlock(case: Case, ranks: Sequence[int]) -> str:
    """Ranks wait for each other."""
    following = (*ranks[1:], ranks[0])
    parts = [
        f"rank {rank} waits in {call_text(case.waits[rank].call)}{at(case.waits[rank].call)} for"
        f" rank {other}"
        for rank, other in zip(ranks, following, strict=True)
    ]
    return f"Deadlock: {'; '.join(parts)}."


def waited_for(case: Case, causes: Sequence[int], wait: Wait) -> str:
    """Ranks have not come to a collective."""
    waits = waiting_for(case.waits.values(), causes)
    waiting = sorted(other.rank for other in waits)
    there = sorted(other.rank for other in waits if _same(other.call, wait.call))
    has = "has" if len(causes) == 1 else "have"
    longest = max((case.waits[r].call.age_s or 0.0 for r in there), default=0.0)
    where = f"{call_text(wait.call)}{at(wait.call)}"
    if waiting and all(case.ranks[rank].gave_up for rank in waiting):
        return (
            f"{sentence(ranks_text(causes))[:-1]} {has} not come to {where};"
            f" {ranks_text(waiting)} {_has(waiting)} failed there: {_ending(case, waiting[0])}."
        )
    elsewhere = "".join(
        f"; {ranks_text(ranks)} {_has(ranks)} waited in {words}"
        for words, ranks in _by_call(w for w in waits if not _same(w.call, wait.call))[:_MOST_SIDES]
    )
    subject = sentence(ranks_text(causes))[:-1]
    if not wait.call.is_collective:
        verb = "sent what" if wait.call.op == "recv" else "taken what"
        return (
            f"{subject} {has} not {verb} {ranks_text(there)} {_has(there)} waited for, in {where},"
            f" for {seconds(longest)}{elsewhere}."
        )
    return (
        f"{subject} {has} not come to {where}; {ranks_text(there)} {_has(there)} waited there for"
        f" {seconds(longest)}{elsewhere}."
    )


def _same(one: Call, other: Call) -> bool:
    """Whether two calls are the same collective, or the same kind of message to the same rank."""
    key = [(c.group, c.op, c.seq if c.is_collective else None, c.peer) for c in (one, other)]
    return key[0] == key[1]


def _by_call(waits: Iterable[Wait]) -> list[tuple[str, list[int]]]:
    """What ranks wait in, most of them first, with who."""
    found: dict[str, list[int]] = {}
    for wait in waits:
        found.setdefault(f"{call_text(wait.call)}{at(wait.call)}", []).append(wait.rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def not_asked(case: Case, wait: Wait, others: Sequence[int]) -> str:
    """Ranks wait for others of which nothing is known."""
    ranks = sorted(rank for rank, w in case.waits.items() if w.call.group == wait.call.group)
    where = f"{call_text(wait.call)}{at(wait.call)}"
    return (
        f"{sentence(ranks_text(ranks))[:-1]} wait{_s(ranks)} in {where},"
        f" for {seconds(wait.call.age_s)}; {ranks_text(others)} of the job"
        f" {'was' if len(others) == 1 else 'were'} not asked."
    )


def gone(case: Case, causes: Sequence[int]) -> str:
    """Ranks are stopped or dead in a collective that all have come to, or outside of any."""
    rank = causes[0]
    by = BY_DEBUGGER if case.ranks[rank].is_debugged else "stopped by a signal"
    state = "has ended" if case.state(rank) == "dead" else f"is {by}"
    text = f"Rank {rank} {state}"
    if len(causes) > 1:
        text = f"{sentence(ranks_text(causes))[:-1]} have ended or are stopped"
    waiting = [r for r in case.waits if r not in causes]
    return text + (f", and {ranks_text(waiting)} {_has(waiting)} to wait." if waiting else ".")


def same_collective(case: Case, wait: Wait) -> str:
    """All are in one collective, or have come to it; or both sides of a message have."""
    call, ranks = wait.call, [wait.rank]
    if call.is_collective:
        ranks = [rank for rank, w in case.waits.items() if w.call.group == call.group]
    is_of_all = set(ranks) >= set(wait.members)
    who = f"All {len(ranks)} ranks of group {call.group}"
    who = who if is_of_all else sentence(ranks_text(ranks))[:-1]
    why = "all ranks of the group have" if call.is_collective else "its other side has"
    why = "nobody is missing" if is_of_all else f"{why} come to it"
    callers = {case.waits[rank].call.caller for rank in ranks}
    place = "at the same line" if len(callers) == 1 else f"at {len(callers)} different lines"
    return (
        f"{who} {'is' if len(ranks) == 1 else 'are'} in {call_text(call)}{at(call)},"
        f"{f' {place},' if len(ranks) > 1 else ''} for {seconds(call.age_s)}: {why}, so it is the"
        " device, the network, or the library that carries it."
    )


def by_stacks(case: Case, causes: Sequence[int], waiting: Sequence[int]) -> str:
    """Most ranks wait for others, to judge by their stacks."""
    lines = {doing.where for r in waiting if (doing := case.ranks[r].doing) and doing.where}
    where = f", at {min(lines)}" if lines else ""
    others = f"{sentence(ranks_text(waiting))[:-1]} wait{_s(waiting)} for other ranks{where}"
    words = doing_words(case.ranks[causes[0]])
    rest = f", and neither do {len(causes) - 1} more" if len(causes) > 1 else ""
    return f"{others}. Rank {causes[0]} does not: it {words}{rest}."


def unknown(case: Case) -> str:
    """Nothing moves."""
    verb = "does" if len(case.stuck) == 1 else "do"
    texts = _what_each_does(case, case.stuck)
    return f"{sentence(ranks_text(case.stuck))[:-1]} {verb} not move: {texts}."


def unrecorded(case: Case) -> str:
    """The recording of ranks is off; the others do not move, if there are others."""
    does = unknown(case) if case.stuck else f"{sentence(_what_each_does(case, case.paused))}"
    return f"{does} {unrecorded_words(ranks_text(case.paused), several=len(case.paused) > 1)}"


def _what_each_does(case: Case, ranks: Sequence[int]) -> str:
    """What these ranks do, those that do the same together; what the most do first."""
    words = {rank: doing_words(case.ranks[rank]) for rank in ranks}
    return "; ".join(
        f"{ranks_text(rank for rank in ranks if words[rank] == text)}: {text.removeprefix('is ')}"
        for text, _ in Counter(words.values()).most_common(3)
    )


def confidence(case: Case, causes: Collection[int]) -> str:
    """How sure it is that ranks are missing from a collective."""
    unseen = [rank for rank in causes if case.state(rank) in {"missing", "unreachable"}]
    if unseen:
        return f"medium: nothing is known of {ranks_text(unseen)}; all others are there"
    doubts = []
    if any(evidence.is_by_flight for evidence in case.ranks.values()):
        doubts.append(
            "by torch's flight recorder, as the agent came after these collectives had begun"
        )
    if all(is_asleep(case.ranks[rank]) for rank in causes):
        doubts.append("it is not known how long what they wait for has been asleep")
    if len(causes) > 1 and any(w.is_for_any for w in waiting_for(case.waits.values(), causes)):
        doubts.append("a message of any of them would do")
    if doubts:
        return f"medium: {'; '.join(doubts)}"
    return "high: who has come to it is on record on every rank of the group"


def cause(case: Case, rank: int) -> Cause:
    """A rank that is named, with what is known of it."""
    evidence = case.ranks.get(rank)
    if evidence is None:
        text = "was not found on any machine that was asked"
        return Cause(rank=rank, pid=None, host="", what=text)
    return Cause(
        rank=rank,
        pid=evidence.pid,
        host=evidence.host,
        what=_what(evidence),
        endpoint=evidence.address,
        evidence=tuple(dict.fromkeys(_evidence(evidence))),
    )


def lines_of_one_rank(case: Case) -> set[str]:
    """The lines from which a single rank has called collectives."""
    found = Counter(
        caller
        for e in case.ranks.values()
        for caller in {call.caller for call in e.calls}
        if caller is not None
    )
    return {caller for caller, number in found.items() if number == 1}


def with_call(cause: Cause, call: Call | None, alone: Collection[str]) -> Cause:
    """A cause of a mismatch, with what it called.

    Args:
        alone: The lines from which no other rank has called a collective.
    """
    if call is None:
        return cause
    is_alone = call.caller in alone
    words = ("no other rank has called a collective from that line",) if is_alone else ()
    return dataclasses.replace(
        cause,
        what=f"called {call_text(call, full=True)}{at(call)}",
        evidence=(*words, f"it {cause.what}", *cause.evidence),
    )


def victims_do(case: Case, victims: Sequence[int]) -> str | None:
    """What the victims are in, and who is where if that is not the same for all."""
    found = _by_call(case.waits[rank] for rank in victims if rank in case.waits)
    if not found or len(found[0][1]) == len(victims):
        return found[0][0] if found else None
    texts = [f"{words} ({ranks_text(ranks)})" for words, ranks in found[:_MOST_SIDES]]
    rest = f" and {len(found) - _MOST_SIDES} more" if len(found) > _MOST_SIDES else ""
    return "; ".join(texts) + rest


def _one_side(call: Call) -> str:
    facts = [call.shapes, call.dtypes, call.reduce_op]
    facts.append(f"root {call.root}" if call.root is not None else None)
    shown = " ".join(fact for fact in facts if fact)
    return f"{call.op}{f' {shown}' if shown else ''}{at(call)}"


def _what(evidence: RankEvidence) -> str:
    """What is the matter with a rank."""
    if evidence.state == "dead":
        return f"has ended: {evidence.ending or 'how is not on record'}"
    if evidence.state == "missing":
        return "was not found on any machine that was asked"
    if evidence.state == "unreachable":
        return "did not answer, and cannot be looked at from outside"
    call = awaited(evidence)
    if call is not None:
        return f"waits in {call_text(call)}{at(call)}"
    text = doing_words(evidence)
    if evidence.ending is not None:
        text += f"; {evidence.ending}"
    return text


def _evidence(evidence: RankEvidence) -> Iterable[str]:
    if evidence.step is not None and evidence.state == "dead":
        yield f"its last step on record is {evidence.step}"
    elif evidence.step is not None:
        yield f"in step {evidence.step}" + (", and it still moves" if evidence.moved else "")
    if evidence.doing is not None and evidence.doing.stack:
        yield "stack, innermost first: " + " < ".join(evidence.doing.stack)
    yield from evidence.others
    if evidence.device is not None:
        yield f"{evidence.device}{SPINS if evidence.is_alive else ''}"
    last = max(
        (call for call in evidence.calls if call.is_collective),
        key=lambda call: (call.start_ns or 0, call.seq),
        default=None,
    )
    if last is not None and last != awaited(evidence):
        end = "which has not ended" if last.is_open else f"{seconds(last.age_s)} ago"
        yield f"its last collective is {call_text(last)}{at(last)}, {end}"
    yield from evidence.notes


def _ending(case: Case, rank: int) -> str:
    evidence = case.ranks.get(rank)
    return (evidence.ending if evidence else None) or "how is not on record"


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _s(ranks: Sequence[int]) -> str:
    return "s" if len(ranks) == 1 else ""


def _calls(ranks: Sequence[int]) -> str:
    return "calls" if len(ranks) == 1 else "call"
