"""The verdict on a job that stands still because of ranks that get on, or that may.

Rules of this file: pure functions. Slow is only what would be called a hang by its length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .case import Case
from .ends import gone
from .evidence import Verdict
from .joining import Finding
from .seen.work import how_sure, is_asleep, is_at_work, is_held_up, progress, work_words
from .words import wording
from .words.texts import UNRECORDED, at, call_text, ranks_text, sentence

_MOST_NAMED = 3
_BY_RECORD = "high: its record grows"


def getting_on(case: Case, ranks: Sequence[int]) -> set[int]:
    """Of these ranks, those that will come by themselves."""
    return {rank for rank in ranks if rank in case.ranks and is_at_work(case.ranks[rank])}


def as_slow(case: Case, verdict: Verdict) -> Verdict:
    """A verdict on ranks that are waited for, if all of them get on and it lasts for long."""
    causes = [cause.rank for cause in verdict.causes if cause.rank is not None]
    is_late = (verdict.still_s or 0.0) >= (verdict.threshold_s or case.threshold_s)
    if (
        verdict.kind not in {"missing", "not_joined"}
        or not is_late
        or len(getting_on(case, causes)) < len(causes)
    ):
        return verdict
    waits = [case.waits[rank].call for rank in verdict.victims if rank in case.waits]
    where = f" in {call_text(waits[0])}{at(waits[0])}" if waits else ""
    who = "it" if len(causes) == 1 else "them"
    verb = "waits" if len(verdict.victims) == 1 else "wait"
    rest = f"; {ranks_text(verdict.victims)} {verb} for {who}{where}" if verdict.victims else ""
    late = [case.ranks[rank] for rank in causes]
    by_record = all(progress(evidence) is None for evidence in late)
    return dataclasses.replace(
        verdict,
        kind="slow",
        is_hang=False,
        headline=f"{_names(case, causes)}{rest}.",
        causes=tuple(
            dataclasses.replace(cause, what=work_words(case.ranks[cause.rank]))
            for cause in verdict.causes
            if cause.rank is not None
        ),
        confidence=_BY_RECORD if by_record else how_sure(late),
    )


def slow_alone(case: Case) -> Verdict | None:
    """No rank waits for another, and all of them get on, or sleep."""
    still = [case.ranks[rank] for rank in case.stuck]
    if not still or any(rank in case.waits for rank in case.stuck):
        return None
    still_s = case.still_s(case.stuck)
    if still_s is None or still_s < case.threshold_s:
        return None
    if not all(is_at_work(evidence) or is_asleep(evidence) for evidence in still):
        return None
    held = [evidence.rank for evidence in still if is_held_up(evidence)]
    if held:
        return _held_up(case, [rank for rank in held if rank is not None])
    return Verdict(
        kind="slow",
        is_hang=False,
        headline=f"{_names(case, case.stuck)}; no rank waits for another.",
        causes=tuple(wording.cause(case, rank) for rank in case.stuck),
        still_s=still_s,
        threshold_s=case.threshold_s,
        confidence=how_sure(still),
    )


def unrecorded(case: Case) -> Finding | None:
    """The recording of ranks is off, and the others stand still, if there are others.

    For how long such a rank has been where it is and what it has come to is not known, so that
    only what no time heals is a hang, or that the others stand still.
    """
    is_locked = any(e.doing is not None and e.doing.is_deadlock for e in case.ranks.values())
    if not case.paused or is_locked or case.circle or gone(case):
        return None
    return Finding(
        kind="unknown",
        causes=(),
        victims=(),
        headline=wording.unrecorded(case),
        confidence=UNRECORDED,
    )


def _held_up(case: Case, ranks: Sequence[int]) -> Verdict:
    """The verdict on ranks that are held up by threads of their own, which sleep."""
    causes = tuple(wording.cause(case, rank) for rank in ranks)
    first = f"{ranks_text(ranks[:1])} {causes[0].what}"
    more = f"; so are {len(ranks) - 1} more ranks" if ranks[1:] else ""
    return Verdict(
        kind="held",
        is_hang=True,
        headline=sentence(f"{first}{more}"),
        causes=causes,
        still_s=case.still_s(ranks),
        threshold_s=case.threshold_s,
        confidence="medium: by the stacks, and nothing tells for how long those threads sleep yet",
    )


def _names(case: Case, ranks: Sequence[int]) -> str:
    """What ranks do: those that do the same together, the first few of them."""
    same: dict[str, list[int]] = {}
    for rank in ranks:
        evidence = case.ranks[rank]
        key = evidence.doing.where if evidence.doing else None
        kind = (progress(evidence) or "").partition("{")[0]
        same.setdefault(f"{kind} {key}", []).append(rank)
    found = []
    for those in list(same.values())[:_MOST_NAMED]:
        words = work_words(case.ranks[those[0]])
        if len(those) > 1:
            words = words.replace("has been", "have been", 1).replace("goes on", "go on", 1)
        found.append(f"{ranks_text(those)} {words}")
    more = len(same) - len(found)
    tail = f"; and others at {more} more places" if more > 0 else ""
    return sentence("; ".join(found))[:-1] + tail
