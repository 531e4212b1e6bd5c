"""The ranks of one job, looked at together: what all rules of `judging` begin with.

Rules of this file: pure functions. Numbers are those of the record; what is not known is None.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from ...messages.frozen import dataclass
from .evidence import RankEvidence
from .waiting import Wait, cycle, waits_of

LEAST_THRESHOLD_S = 10.0
"""No job that has stood still for less is called hung, unless the cause is certain."""
START_S = 60.0
"""The same of a job whose ranks have not met yet: they may be long in importing what they need."""
_STEPS = 5
_CALM_S = 2.0
_CALM_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The ranks of one job.

    Attributes:
        world: All ranks that the job should have.
        waits: The waits of those that are in a collective.
        circle: The ranks of a circle of waits; none where there is none.
        median_step_s: The median of the ranks' median steps.
        living: The ranks that are known to run, or to be stopped.
        stuck: The living ranks whose record does not grow, though it may.
        paused: Those whose record does not grow because their recording is off.
    """

    ranks: Mapping[int, RankEvidence]
    world: tuple[int, ...]
    waits: Mapping[int, Wait]
    circle: tuple[int, ...]
    median_step_s: float | None
    living: tuple[int, ...]
    stuck: tuple[int, ...]
    paused: tuple[int, ...]

    @classmethod
    def of(cls, evidence: Iterable[RankEvidence], world: Iterable[int] = ()) -> Case:
        """Put what is known of the ranks together."""
        ranks = {e.rank: e for e in evidence if e.rank is not None}
        sizes = [e.world_size for e in ranks.values() if e.world_size is not None]
        expected = {*ranks, *world, *range(max(sizes, default=0))}
        medians = [e.median_step_s for e in ranks.values() if e.median_step_s is not None]
        waits = waits_of(ranks, expected)
        living = tuple(sorted(rank for rank, e in ranks.items() if e.is_alive))
        still = [rank for rank in living if not ranks[rank].moved]
        return cls(
            ranks=ranks,
            world=tuple(sorted(expected)),
            waits=waits,
            circle=cycle(waits),
            median_step_s=statistics.median(medians) if medians else None,
            living=living,
            stuck=tuple(rank for rank in still if not ranks[rank].is_paused),
            paused=tuple(rank for rank in still if ranks[rank].is_paused),
        )

    @property
    def threshold_s(self) -> float:
        """After how long without progress the job is called hung."""
        return max(LEAST_THRESHOLD_S, _STEPS * (self.median_step_s or 0.0))

    @property
    def seen_ns(self) -> int | None:
        """When the ranks were looked at, by the clocks of their machines, the last of them."""
        calls = [call for e in self.ranks.values() for call in e.calls]
        times = [
            call.start_ns + round(call.age_s * 1e9)
            for call in calls
            if call.start_ns is not None and call.age_s is not None
        ]
        return max(times, default=None)

    @property
    def calm_s(self) -> float:
        """Grace period before a rank without new rows counts as stuck."""
        return max(_CALM_S, _CALM_STEPS * (self.median_step_s or 0.0))

    def state(self, rank: int) -> str:
        """The state of a rank; one of which there is nothing is missing."""
        return self.ranks[rank].state if rank in self.ranks else "missing"

    def start_s(self, ranks: Iterable[int]) -> float | None:
        """For how long the youngest of these ranks has been there."""
        found = (self.ranks[rank].age_s for rank in ranks if rank in self.ranks)
        return min((age for age in found if age is not None), default=None)

    def still_s(self, ranks: Iterable[int]) -> float | None:
        """For how long none of these ranks has moved; None where that is not known."""
        found = (self.ranks[rank].still_s for rank in ranks if rank in self.ranks)
        ages = [age for age in found if age is not None]
        return min(ages) if ages else None
