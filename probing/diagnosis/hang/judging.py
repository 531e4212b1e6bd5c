"""The rules that make a verdict of what is known of the ranks.

Rules of this file: pure functions, tried in the order of `_RULES`; the first that gives a verdict
ends it. Whoever only waits for another is a victim and is never named as a cause. A fault that
nothing but a person can end (a mismatch, a rank that is dead or stopped, a circle of waits) is
certain at once; everything else is a hang only after `Case.threshold_s`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from .case import START_S, Case
from .ends import gone, judge_ends, named_by_torch, without_casualties
from .evidence import Kind, Outcome, RankEvidence, Verdict
from .hints import hints, hints_of_one
from .joining import Finding, doubtful, file_lock, joining, store, unmatched
from .mismatches import Mismatch, first_mismatch, sequences
from .processes import judge_process, judge_unseen
from .seen.work import is_at_work, without_starved
from .slowness import as_slow, getting_on, slow_alone, unrecorded
from .waiting import ONLY_WAIT, chain_ends, victims_of, waiting_for, wanted
from .words import remedies, texts, wording

_CERTAIN = frozenset({"mismatch", "dead", "stopped", "deadlock"})


def judge(
    evidence: Sequence[RankEvidence],
    *,
    world: Iterable[int] = (),
    coverage: str = "",
    job: str | None = None,
    asked: str = "-t all",
    has_others: bool = False,
) -> Verdict:
    """Say why a job does not go on, or that it does.

    Args:
        evidence: What is known of its processes.
        world: The ranks that it should have, as far as the launcher tells.
        coverage: The sentence that says who was asked.
        asked: How the command named them, for what it says to type next.
        has_others: Whether ranks of other jobs may be there, too.
    """
    case = Case.of([e for e in evidence if e.rank is not None], world)
    if not evidence or (len(evidence) == 1 and len(case.world) < 2):
        one = evidence[0] if evidence else None
        verdict = judge_process(one)
        verdict = dataclasses.replace(verdict, notes=(*verdict.notes, *hints_of_one(one)))
    else:
        verdict = next(found for rule in _RULES if (found := rule(case)) is not None)
        verdict = dataclasses.replace(verdict, notes=(*verdict.notes, *hints(case, verdict, asked)))
    verdict = dataclasses.replace(verdict, job=job)
    return dataclasses.replace(
        verdict,
        outcome=_outcome(verdict),
        coverage=coverage,
        next_steps=remedies.next_steps(
            verdict,
            asked,
            loading=_loading(evidence),
            evals={e.pid: e.eval_id for e in evidence if e.eval_id is not None},
            ended={e.pid: e for e in evidence if e.state in {"dead", "missing"}},
            has_others=has_others,
        ),
        queries=remedies.queries(verdict, case),
    )


def _loading(evidence: Sequence[RankEvidence]) -> set[int | None]:
    """The processes that wait for a batch; a worker, which makes one, does not."""
    found = (e for e in evidence if e.doing is not None and e.doing.kind == "loader")
    return {e.pid for e in found if e.doing is not None and "waiting for a batch" in e.doing.words}


def _outcome(verdict: Verdict) -> Outcome:
    """What a verdict comes to."""
    if verdict.is_hang:
        return "hang"
    if verdict.has_ended and not verdict.ended_well:
        return "crashed"
    return "slow" if verdict.kind == "slow" else "fine"


def _ended(case: Case) -> Verdict | None:
    """All ranks have ended: which of them did so first, and not because of another."""
    if case.living or not any(e.state == "dead" for e in case.ranks.values()):
        return None
    found = _mismatch_of(case)
    if found is not None:
        return dataclasses.replace(_of_mismatch(case, found), has_ended=True)
    return judge_ends(case)


def _healthy(case: Case) -> Verdict | None:
    """Every living rank moves, or has been still for no longer than a step may take."""
    if len(case.paused) == len(case.living):
        return None
    stuck = case.stuck
    still_s = case.still_s(stuck)
    is_calm = still_s is not None and still_s < case.calm_s and not _faults(case)
    if stuck and not is_calm:
        return None
    return Verdict(kind="healthy", is_hang=False, headline=wording.healthy(case))


def _mismatch(case: Case) -> Verdict | None:
    """Ranks of a group do not agree on a collective."""
    found = _mismatch_of(case)
    return None if found is None else _of_mismatch(case, found)


def _deadlock(case: Case) -> Verdict | None:
    ranks = case.circle
    if not ranks:
        return None
    return _complete(
        case,
        "deadlock",
        ranks,
        headline=wording.deadlock(case, ranks),
        confidence="high: each of these waits is on record",
    )


def _not_asked(case: Case) -> Verdict | None:
    """All that the ranks which were asked wait for are ranks that were not."""
    waits = [wait for wait in case.waits.values() if wait.late and not wait.is_doubtful]
    absent = wanted(waits)
    if not waits or absent & set(case.ranks):
        return None
    oldest = max(waits, key=lambda wait: wait.call.age_s or 0.0)
    return _complete(
        case,
        "unseen",
        (),
        headline=wording.not_asked(case, oldest, sorted(absent)),
        confidence=texts.UNASKED,
        group=oldest.call.group,
    )


def _waited_for(case: Case) -> Verdict | None:
    """Ranks are waited for: the ends of the chains of waits."""
    ends = chain_ends(case.waits)
    causes = _gravest(case, without_casualties(case, ends))
    if not causes:
        return None
    kind = _kind_of(case, causes)
    waiting = waiting_for(case.waits.values(), causes) or [*case.waits.values()]
    first = max(waiting, key=lambda wait: wait.call.age_s or 0.0)
    return _complete(
        case,
        kind,
        sorted(causes),
        headline=wording.waited_for(case, sorted(causes), first),
        confidence=wording.confidence(case, causes),
        group=first.call.group,
    )


def _named_by_torch(case: Case) -> Verdict | None:
    """An error of torch says who has not come, and no collective is on record."""
    named = sorted(named_by_torch(case.ranks.values()) & set(case.ranks))
    if not named:
        return None
    return _complete(
        case,
        _kind_of(case, named),
        named,
        headline=wording.by_torch(case, named),
        confidence="high: torch's own error names it",
    )


def _stopped(case: Case) -> Verdict | None:
    """A rank that has come to its collective is stopped, or has ended in it."""
    absent = gone(case)
    groups = {wait.call.group: wait.members for wait in case.waits.values()}
    members = set().union(*groups.values())
    causes = without_casualties(case, absent & members if members else absent)
    if not causes:
        return None
    return _complete(
        case,
        _kind_of(case, causes),
        sorted(causes),
        headline=wording.gone(case, sorted(causes)),
        confidence="high: the kernel says so",
    )


def _same_collective(case: Case) -> Verdict | None:
    """All members are in the same collective, and nobody is missing."""
    waits = [case.waits[rank] for rank in case.stuck if rank in case.waits]
    if not waits or any(wait.late for wait in waits):
        return None
    oldest = max(waits, key=lambda wait: wait.call.age_s or 0.0)
    return _complete(
        case,
        "same_collective",
        (),
        headline=wording.same_collective(case, oldest),
        confidence="medium: that nobody is missing is on record; what the device and the network"
        " do is not",
        group=oldest.call.group,
    )


def _by_stacks(case: Case) -> Verdict | None:
    """No collective is on record, but the stacks show that most ranks wait for others."""
    doing = {rank: e.doing for rank, e in case.ranks.items() if e.is_alive and e.doing}
    waiting = {rank for rank, what in doing.items() if what.kind in ONLY_WAIT}
    causes = set(doing) - waiting
    if not waiting or not causes:
        return None
    return _complete(
        case,
        "missing",
        sorted(causes),
        headline=wording.by_stacks(case, sorted(causes), sorted(waiting)),
        victims=tuple(sorted(waiting)),
        confidence="low: from the stacks alone, as these collectives are not on record",
    )


def _unknown(case: Case) -> Verdict:
    """Nothing moves, and no rule says why."""
    return _complete(
        case,
        "unknown",
        (),
        headline=wording.unknown(case),
        confidence="low: no collective in progress is on record",
    )


def _by(rule: Callable[[Case], Finding | None]) -> Callable[[Case], Verdict | None]:
    """A rule that only finds what a verdict is made of."""

    def judged(case: Case) -> Verdict | None:
        found = rule(case)
        if found is None:
            return None
        return _complete(
            case,
            found.kind,
            found.causes,
            headline=found.headline,
            confidence=found.confidence,
            victims=found.victims,
        )

    return judged


_RULES: tuple[Callable[[Case], Verdict | None], ...] = (
    judge_unseen,
    _ended,
    _healthy,
    _by(unrecorded),
    _mismatch,
    _by(unmatched),
    _by(joining),
    _by(store),
    _deadlock,
    _by(file_lock),
    _not_asked,
    _waited_for,
    _named_by_torch,
    _stopped,
    _by(doubtful),
    _same_collective,
    _by_stacks,
    slow_alone,
    _unknown,
)


def _complete(
    case: Case,
    kind: Kind,
    causes: Sequence[int],
    *,
    headline: str,
    confidence: str,
    group: str | None = None,
    victims: tuple[int, ...] | None = None,
) -> Verdict:
    """A verdict, with for how long nothing has moved and whether that is long enough."""
    waiting = victims_of(case.waits, causes) if victims is None else victims
    moving = getting_on(case, causes)
    still_s = case.still_s({*causes, *(waiting or case.living)} - _frozen(case) - moving)
    threshold_s = case.threshold_s
    if still_s is None and kind == "not_joined":  # nothing is on record yet
        still_s, threshold_s = case.start_s(case.living), START_S
    is_late = still_s is not None and still_s >= threshold_s
    verdict = Verdict(
        kind=kind,
        is_hang=_is_certain(case, kind, causes) or (is_late and not moving),
        headline=headline,
        causes=tuple(wording.cause(case, rank) for rank in causes),
        victims=waiting,
        victims_do=wording.victims_do(case, waiting),
        group=group,
        still_s=still_s,
        threshold_s=threshold_s,
        confidence=confidence,
    )
    return as_slow(case, verdict) if moving else verdict


def _mismatch_of(case: Case) -> Mismatch | None:
    """The mismatch that stands longest, among the groups in which somebody waits or has died."""
    found_calls = sequences({rank: e.calls for rank, e in case.ranks.items()})
    names = {wait.call.group for wait in case.waits.values()}
    dead = [e for e in case.ranks.values() if e.state == "dead" and not e.ended_well]
    names |= {call.group for e in dead for call in e.calls[-1:]}
    found = [first_mismatch(name, found_calls.get(name, {})) for name in sorted(names)]
    return max(
        (mismatch for mismatch in found if mismatch is not None),
        key=lambda mismatch: max(call.age_s or 0.0 for call in mismatch.calls.values()),
        default=None,
    )


def _of_mismatch(case: Case, found: Mismatch) -> Verdict:
    verdict = _complete(
        case,
        "mismatch",
        found.odd,
        headline=wording.mismatch(found),
        confidence=wording.mismatch_confidence(found),
        group=found.group,
    )
    alone = wording.lines_of_one_rank(case)
    causes = tuple(
        wording.with_call(cause, found.calls.get(cause.rank or 0), alone)
        for cause in verdict.causes
    )
    victims = tuple(sorted({*verdict.victims, *found.usual} - set(found.odd)))
    return dataclasses.replace(
        verdict,
        causes=causes,
        victims=victims,
        victims_do=wording.usual_call(found) or verdict.victims_do,
        is_hang=bool(case.living),
    )


def _gravest(case: Case, ranks: set[int]) -> set[int]:
    """Of these ranks, those that will not come by themselves, if there are any."""
    fixed = {r for r in ranks if case.state(r) in {"dead", "stopped", "missing", "unreachable"}}
    slow = {
        rank
        for rank in ranks - fixed
        if is_at_work(case.ranks[rank]) or (case.ranks[rank].still_s or 0.0) < case.threshold_s
    }
    return without_starved(ranks - slow or ranks, case.ranks)


def _kind_of(case: Case, causes: Iterable[int]) -> Kind:
    """What is the matter with the ranks that are waited for: the gravest of it."""
    states = {case.state(rank) for rank in causes}
    if "dead" in states:
        return "dead"
    if "stopped" in states:
        return "stopped"
    return "unseen" if states & {"missing", "unreachable"} else "missing"


def _is_certain(case: Case, kind: Kind, causes: Sequence[int]) -> bool:
    """Whether no waiting will help: nor will it where ranks have failed of it already."""
    has_failed = any(e.gave_up for rank, e in case.ranks.items() if rank not in causes)
    found = (case.ranks[rank].doing for rank in causes if rank in case.ranks)
    if any(doing is not None and doing.is_deadlock for doing in found):
        return True
    if kind == "stopped":
        stopped = [case.ranks[rank] for rank in causes if case.state(rank) == "stopped"]
        return has_failed or not all(evidence.is_debugged for evidence in stopped)
    return kind in _CERTAIN or _is_leaving(case, causes) or (has_failed and bool(causes))


def _is_leaving(case: Case, ranks: Iterable[int]) -> bool:
    """Whether one of these ranks is at its end already, so that it will not come any more."""
    found = (case.ranks[rank] for rank in ranks if rank in case.ranks)
    return any(e.ending is not None and e.doing and e.doing.kind == "exiting" for e in found)


def _frozen(case: Case) -> set[int]:
    """The ranks whose record stands still whatever becomes of the job."""
    return {rank for rank in case.ranks if case.state(rank) == "dead"} | {*case.paused}


def _faults(case: Case) -> bool:
    """Whether anything is wrong that does not pass by itself."""
    return bool(gone(case)) or bool(case.circle)
