"""Which of the ranks that have ended is the cause, and which followed.

Rules of this file: pure functions. What a rank had come to counts before its last words: who waited
in a collective when it ended is a victim of those that had not come. Of these, torch's own naming
comes first, then an error of the rank's own, then a death without a word; an error that says that
another rank was gone comes last. Who ended in an orderly way is done, unless others need it still.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from .case import Case
from .evidence import RankEvidence, Verdict
from .seen.work import is_at_work
from .waiting import ONLY_WAIT, chain_ends, wanted
from .words import wording

_NAMED = re.compile(r"\b[Rr]anks? ([\d, ]+) failed to (?:pass|reach|join)\b")
"""How torch names those that a `monitored_barrier` has waited for."""
_BY_CLOCKS = "medium: which rank was the first is told by the clocks of the machines"
_BY_REASONS = "high: the others ended because another had, by their errors or exit statuses"
_BY_RECORD = "high: which collective each rank had come to is on record"
_BY_TORCH = "high: torch's own error names it"


def judge_ends(case: Case) -> Verdict:
    """The verdict on a job whose ranks have all ended, and agreed on their collectives."""
    dead = [e for e in case.ranks.values() if e.state == "dead"]
    if all(e.ended_well for e in dead):
        text = wording.ended_well(case)
        return Verdict(kind="ended", is_hang=False, has_ended=True, ended_well=True, headline=text)
    late = chain_ends(case.waits) & {e.rank for e in dead if e.rank is not None}
    causes = first_dead([case.ranks[rank] for rank in late]) or sorted(late)
    confidence = _BY_RECORD
    headline = wording.ended_before
    senders = {e.asked_by for e in dead}
    if len(senders) == 1 and None not in senders and not (causes and _had_waited(case)):
        text = wording.all_asked(case, dead)
        return Verdict(
            kind="ended", is_hang=False, has_ended=True, is_terminated=True, headline=text
        )
    if not causes:
        causes = first_dead(dead)
        others = [e for e in dead if e.rank not in causes]
        are_victims = bool(others) and all(e.died_of_peers for e in others)
        confidence = _BY_REASONS if are_victims else _BY_CLOCKS
        headline = wording.ended_by
    named = named_by_torch(case.ranks.values()) & set(case.ranks)
    if named and (not late or named & late):
        causes, confidence = sorted(named), _BY_TORCH
    if not causes:
        return Verdict(
            kind="ended", is_hang=False, has_ended=True, headline=wording.all_ended(case)
        )
    return Verdict(
        kind="ended",
        is_hang=False,
        has_ended=True,
        is_terminated=causes[0] in case.ranks and case.ranks[causes[0]].is_terminated,
        headline=headline(case, causes),
        causes=tuple(wording.cause(case, rank) for rank in causes),
        victims=tuple(sorted(e.rank for e in dead if e.rank is not None and e.rank not in causes)),
        confidence=confidence,
    )


def _had_waited(case: Case) -> bool:
    """Whether a rank had waited for others for long as it ended; true where that is not known."""
    for rank, wait in case.waits.items():
        ended_ns, began_ns = case.ranks[rank].ended_ns, wait.call.start_ns
        if ended_ns is None or began_ns is None or ended_ns - began_ns >= case.threshold_s * 1e9:
            return True
    return False


def named_by_torch(evidence: Iterable[RankEvidence]) -> set[int]:
    """The ranks that errors of torch say have not come."""
    texts = (
        text
        for e in evidence
        for text in (e.ending, *(call.error for call in e.calls[-1:]))
        if text is not None
    )
    found = (match[1] for text in texts for match in _NAMED.finditer(text))
    return {int(number) for numbers in found for number in re.findall(r"\d+", numbers)}


def first_dead(dead: Sequence[RankEvidence]) -> list[int]:
    """Those that ended for a reason of their own.

    That is the first that left word of it, else those that left in failure by themselves, else
    those killed by the kernel OOM killer, else those that left no word where others did,
    or else the one that ended first. Times of files go on in ticks: of one tick, all are told.
    """
    own = [e for e in dead if e.ended_ns and not e.died_of_peers]
    timed = [e for e in dead if e.ended_ns]
    wordless = [e for e in dead if e.is_wordless and not e.died_of_peers]
    killed = [e for e in wordless if e.way == "oom"]
    first = [_earliest(those) for those in (own, timed) if those]
    left = [e for e in dead if e.way == "left" and not e.died_of_peers]
    if own:
        found = first[0]
    elif left:
        found = left
    elif killed or (wordless and (timed or len(wordless) < len(dead))):
        found = killed or wordless
    else:
        found = first[-1] if first else []
    return sorted(e.rank for e in found if e.rank is not None)


def _earliest(ended: Sequence[RankEvidence]) -> list[RankEvidence]:
    """Those of them that ended first."""
    when_ns = min(e.ended_ns or 0 for e in ended)
    return [e for e in ended if (e.ended_ns or 0) == when_ns]


def gone(case: Case) -> set[int]:
    """The ranks that are stopped, or that have ended while others need them."""
    found = {rank for rank in case.ranks if case.state(rank) in {"stopped", "dead"}}
    done = {rank for rank in found if case.ranks[rank].ended_well}
    if not done or any(_waits_by_stack(case, rank) for rank in case.stuck):
        return found
    groups = {wait.call.group for wait in case.waits.values()}
    late = wanted(case.waits.values())
    return {r for r in found if r not in done or r in late or _has_left_open(case.ranks[r], groups)}


def _waits_by_stack(case: Case, rank: int) -> bool:
    """Whether a rank is seen to wait for others for long, and not on record for whom."""
    evidence = case.ranks[rank]
    if evidence.doing is None or evidence.doing.kind not in ONLY_WAIT or rank in case.waits:
        return False
    return (evidence.still_s or 0.0) >= case.threshold_s and not is_at_work(evidence)


def _has_left_open(evidence: RankEvidence, groups: Collection[str]) -> bool:
    """Whether a rank has begun a call of one of these groups, and never ended it."""
    return any(call.group in groups and (call.is_open or call.error) for call in evidence.calls)


def without_casualties(case: Case, ranks: Iterable[int]) -> set[int]:
    """Of these ranks, those that did not just die because another was gone."""
    named = set(ranks)
    peers = {r for r in named if r in case.ranks and case.ranks[r].gave_up}
    if named - peers:
        return named - peers
    dead = [e for e in case.ranks.values() if e.state == "dead"]
    return set(first_dead(dead)) if peers else named
