"""A rank's own time: what a step takes it without its waiting for other ranks.

Rules of this file: pure. Where ranks wait for each other all steps take equally long, so a step's
duration blames nobody; what a rank does not spend blocked in collectives is its own. What the rank
itself has told of its waiting for gradients comes first. Where it is not known how long it was
blocked in collectives that it did not wait for at once, the last one of a step and group tells:
from its own entry to that of the last rank. Of messages only known waits count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field

from ....messages.frozen import dataclass
from ....tables import STEP_PHASES
from ..naming import Rank
from .arrivals import entries_of
from .clocks import Clocks
from .times import MESSAGES, Collective, RankTimes, Span, Step

_GAPS = {
    ("forward", "forward"): "loss",
    ("forward", "backward"): "loss",
    ("backward", "optimizer"): "gradients",
    ("optimizer", "optimizer"): "gradients",
}
"""The phase between the end of one and the beginning of the next, as the agent divides a step."""
_LAST = {"forward": "loss", "backward": "gradients"}
"""The same behind the last that is known."""
_SYNCED = frozenset({"backward", "gradients"})
"""The phases whose waiting `Step.sync_s` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep:
    """One step of one rank, apart from its waiting for others.

    Attributes:
        phases: The own time of each phase.
        costs: See `Step`; of the whole step.
    """

    duration_s: float
    blocked_s: float
    phases: Mapping[str, float]
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def own_s(self) -> float:
        """What the rank spent itself."""
        return max(0.0, self.duration_s - self.blocked_s)


def own_steps(ranks: Sequence[RankTimes], clocks: Clocks) -> dict[Rank, dict[int, OwnStep]]:
    """The own time of every step of every rank."""
    leads = _leads(ranks, clocks)
    return {one.rank: _own_of(one, leads) for one in ranks}


def _own_of(one: RankTimes, leads: Mapping[tuple[Rank, str, int], float]) -> dict[int, OwnStep]:
    """The own time of every step of one rank."""
    blocked: dict[int, dict[str, float]] = {}
    unknown: dict[tuple[int, str], Collective] = {}
    starts = [span.start_ns for span in one.spans]
    for c in one.collectives:
        known = _known_blocked_s(c)
        if known is None:
            if c.op not in MESSAGES:
                unknown[c.step, c.group] = c  # the last one stays
        else:
            _add(blocked, c.step, _phase_at(one.spans, starts, c.start_ns), known)
    for c in unknown.values():
        lead = leads.get((one.rank, c.group, c.seq), 0.0)
        _add(blocked, c.step, _phase_at(one.spans, starts, c.start_ns), lead)
    return {step.step: _own(step, blocked.get(step.step, {})) for step in one.steps}


def _known_blocked_s(c: Collective) -> float | None:
    """How long the rank stood still for a collective; None where that is not known."""
    if c.blocked_s is not None:
        return c.blocked_s
    if c.is_async or c.end_ns is None:
        return None
    return (c.end_ns - c.start_ns) * 1e-9


def _leads(ranks: Sequence[RankTimes], clocks: Clocks) -> dict[tuple[Rank, str, int], float]:
    """By how much each rank entered each collective before the last one did."""
    found = {}
    for (group, seq), at in entries_of(ranks, clocks).items():
        last = max(at.values())
        found.update({(rank, group, seq): last - entered for rank, entered in at.items()})
    return found


def _add(blocked: dict[int, dict[str, float]], step: int, phase: str, seconds: float) -> None:
    at = blocked.setdefault(step, {})
    at[phase] = at.get(phase, 0.0) + seconds


def _phase_at(spans: Sequence[Span], starts: Sequence[int], moment_ns: int) -> str:
    """The phase that a moment falls in: a known span, or the gap behind it."""
    index = bisect_right(starts, moment_ns) - 1
    if index < 0:
        return "other"
    span = spans[index]
    if moment_ns < span.end_ns:
        return span.phase
    if index + 1 == len(spans):
        return _LAST.get(span.phase, "other")
    return _GAPS.get((span.phase, spans[index + 1].phase), "other")


def _own(step: Step, blocked: Mapping[str, float]) -> OwnStep:
    if step.sync_s is not None:
        blocked = {phase: by for phase, by in blocked.items() if phase not in _SYNCED}
    phases = {
        phase: max(0.0, step.phases[phase] - blocked.get(phase, 0.0))
        for phase in STEP_PHASES
        if phase in step.phases
    }
    return OwnStep(
        duration_s=step.duration_s,
        blocked_s=(step.sync_s or 0.0) + sum(blocked.values()),
        phases=phases,
        costs=step.costs,
    )
