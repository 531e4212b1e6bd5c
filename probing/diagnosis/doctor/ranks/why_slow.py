"""What a rank that holds up the others does in the time that it has more than they.

Rules of this file: pure functions of how a rank does and of its facts. What is on record of the
rank itself, as its data and its checkpoints, comes before what the kernel has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....cluster.ranks.slow.reasons import is_taken, reasons
from ....messages.frozen import dataclass
from ....units import duration
from ...phase_words import PHASE_WORDS
from ..facts import Facts
from ..not_looked_at import NotLookedAt
from ..rules.data import fix_of_loaders, loader_words

if TYPE_CHECKING:
    from ....cluster.ranks.slow.pace import RankPace

_MOST = 0.5
"""What part of what a rank has more must be in a phase, and in how many of its steps a checkpoint
be written, for it to be the cause."""
_LARGER = 1.2
_COUNTED = 56
"""What both times and samples say comes before what only may be wrong, as a loss that is flat."""
_EVEN = "Give all ranks batches of one size, where it is not meant that one has more to do."
_SAVED = (
    "SELECT count(DISTINCT step) AS steps, max(caller) AS caller FROM python.checkpoints"
    " WHERE duration IS NOT NULL AND step IN (SELECT step FROM python.steps"
    " WHERE duration IS NOT NULL ORDER BY step DESC LIMIT {last})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a rank is slow, or its parameters are not those of the others.

    Attributes:
        words: A clause that goes on a sentence about that; empty where nothing is known.
        evidence: What it follows from.
        fix: What to do; empty where that is not told by it.
        next: The command that shows more; empty likewise.
        rule: The rule that tells of it in the rank alone; empty where there is none.
        is_doubtful: Whether the rank need not be at fault: the script may have given it more to do
            on purpose, or its machine has more to do than it can, of which it has the most.
        gravity: Where what is possible is graver than that a rank is slow.
    """

    words: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""
    next: str = ""
    rule: str = ""
    is_doubtful: bool = False
    gravity: int | None = None


def why_slow(pace: RankPace, ranks: Mapping[int, Facts]) -> Why:
    """Why a rank takes longer than the others.

    Args:
        ranks: The facts of all ranks that were looked at, by rank.
    """
    counted = next(iter(reasons(pace)), "")
    phase, more = max(pace.phases.items(), key=lambda each: each[1], default=("", 0.0))
    facts = ranks.get(pace.rank) if isinstance(pace.rank, int) else None
    given = {rank: _samples(one) for rank, one in ranks.items()}
    if facts is not None and (larger := _larger(pace, given)):
        return Why(
            words=larger,
            evidence=(counted,) if counted else (),
            fix=_EVEN,
            is_doubtful=True,
            gravity=_COUNTED,
        )
    if facts is None:
        return Why(words=counted)
    words, evidence = counted, []
    if more >= _MOST * pace.excess_s:
        figure = f"{duration(more)} more in {PHASE_WORDS[phase]} than others"
        if phase == "data_wait":
            return _of_data(facts, figure)
        saver = _saver(facts, pace.steps) if phase == "other" else ""
        others = (one for rank, one in ranks.items() if rank != pace.rank)
        if saver and not any(_saver(one, pace.steps) for one in others):
            return _of_checkpoints(saver, figure, counted)
        words, evidence = counted or f"most of it in {PHASE_WORDS[phase]}", [figure]
    is_crowded = bool(is_taken(pace) and facts.crowd)
    if is_crowded:
        evidence.append(facts.crowd)
    return Why(words=words, evidence=tuple(evidence), is_doubtful=is_crowded)


def _samples(facts: Facts) -> float:
    """How many tokens, or else samples, a rank is given in a step, in the middle; 0 if unknown."""
    try:
        newest = facts.steps.last()
    except NotLookedAt:
        return 0.0
    for name in ("tokens", "samples"):
        known = newest.column(name)
        if len(known) and np.isfinite(known).all():
            return float(np.median(known))
    return 0.0


def _larger(pace: RankPace, given: Mapping[int, float]) -> str:
    """That its batches are larger by what it takes longer; empty where they are not."""
    own = given.get(pace.rank, 0.0) if isinstance(pace.rank, int) else 0.0
    others = [number for rank, number in given.items() if rank != pace.rank]
    if not others or not min(others) > 0 or own < _LARGER * max(others):
        return ""
    other = float(np.median(others))
    usual_s = pace.own_s - pace.excess_s
    if usual_s <= 0 or pace.own_s / usual_s > _LARGER * own / other:
        return ""
    return f"its batches are larger: {own:,.0f} in a step, and {other:,.0f} on the others"


def _of_data(facts: Facts, figure: str) -> Why:
    try:
        loaders, fix = loader_words(facts), fix_of_loaders(facts)
    except NotLookedAt:
        loaders, fix = [], ""
    return Why(
        words="it waits for its own data",
        evidence=(figure, *loaders),
        fix=f"Look at the data of that rank. {fix}".rstrip(),
        next="probing ENDPOINT dataloaders",
    )


def _of_checkpoints(saver: str, figure: str, counted: str) -> Why:
    return Why(
        words=f"it alone writes checkpoints meanwhile, at {saver}",
        evidence=(figure, *((counted,) if counted else ())),
        fix="Write checkpoints less often, or with torch.distributed.checkpoint.async_save.",
        next='probing ENDPOINT query "SELECT step, path, duration, bytes FROM python.checkpoints'
        ' ORDER BY step DESC LIMIT 10"',
        rule="checkpoints",
    )


def _saver(facts: Facts, last: int) -> str:
    """Where a rank writes a checkpoint in most of its last steps; empty if it does not."""
    try:
        row = facts.rows(_SAVED.format(last=last))[0]
    except NotLookedAt:
        return ""
    return (row["caller"] or "the script") if row["steps"] > _MOST * last else ""
