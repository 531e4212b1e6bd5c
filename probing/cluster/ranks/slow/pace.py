"""How a rank's own work does beside that of the ranks that do the same.

Rules of this file: pure. In each step a rank's own time is measured against the cohort's middle, in
units of a robust spread: the larger one of how ranks differ and of how a rank differs from itself.
Of how ranks differ only the quick half counts where that is smaller, so that half a cohort of slow
ranks does not hide itself. One slow step makes nobody a straggler. A rank whose own times vary may
still be the slowest of all step after step, which chance does not do: then those steps count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from statistics import median

from ....messages.frozen import dataclass
from ....tables import STEP_PHASES
from ..naming import Rank
from .arrivals import Arrivals
from .own_time import OwnStep
from .robust import lower_middle, middle, sigma
from .times import COSTS, RankTimes

Z_LIMIT = 3.5
"""From how many standard deviations on a step counts as slow (Iglewicz and Hoaglin, 1993)."""
LEAST_SHARE = 0.05
"""How much of a step the excess must be to count: less is not worth anybody's night."""
LEAST_STEPS = 3
STEADY_STEPS, STEADY_EXCESS, STEADY_CHANCE = 20, 0.1, 2.5e-4
"""A rank that is the slowest of all in so many of these steps that chance makes one of two that are
alike so less often than this, and by this share of a step in the middle, is slow whatever the
spread (sign test: 18 of 20, 32 of 40, 80 of 120)."""
_NOISE_SHARE = 0.005
"""A spread below this share of a step is taken for this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """How one rank does beside its cohort, over the steps they share.

    Attributes:
        cohort: Which cohort it is compared in, from 0.
        own_s: Its own time per step, in the middle.
        blocked_s: What it waited for others per step, in the middle.
        excess_s: What its own time is above the cohort's middle, in the steps that count: the slow
            ones of a rank that is slow at times, else all.
        z: That in standard deviations.
        slow_steps: In how many steps it was slow.
        steps: Of how many.
        last_in: To how many collectives it was the last to come.
        collectives: Of how many.
        late_s: How far behind the others it then was, in the middle; None where it never was.
        phases: What each phase has above the cohort's middle.
        costs: The same of what was counted beside time, see `times.COSTS`.
        sm_mhz: The clock of its device; None where unknown.
        usual_mhz: That of the others of its cohort, in the middle.
        throttled: What holds it down.
        on_device: Whether its time is by the clock of its device.
    """

    rank: Rank
    host: str
    device: int | None
    cohort: int
    own_s: float
    blocked_s: float
    excess_s: float
    z: float
    slow_steps: int
    steps: int
    last_in: int = 0
    collectives: int = 0
    late_s: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    sm_mhz: float | None = None
    usual_mhz: float | None = None
    throttled: str | None = None
    on_device: bool = False

    @property
    def is_straggler(self) -> bool:
        """Whether it is slow in at least half of the steps."""
        return self.steps >= LEAST_STEPS and 2 * self.slow_steps >= self.steps

    @property
    def is_slow_at_times(self) -> bool:
        """Whether it is slow in some steps, but in fewer than half."""
        return not self.is_straggler and self.steps >= LEAST_STEPS and self.slow_steps >= 2


class _Cohort:
    """The own times of ranks that do the same work, over the steps they share."""

    def __init__(
        self, ranks: Sequence[RankTimes], own: Mapping[Rank, Mapping[int, OwnStep]]
    ) -> None:
        self.names = [one.rank for one in ranks]
        self.clocks = {one.rank: one.sm_mhz for one in ranks if one.sm_mhz is not None}
        self.own = own
        self.steps = shared_steps(ranks, own)
        middles = [lower_middle([own[r][s].own_s for r in self.names]) for s in self.steps]
        self.excess = {
            rank: [own[rank][s].own_s - at for s, at in zip(self.steps, middles, strict=True)]
            for rank in self.names
        }
        durations = [own[rank][step].duration_s for rank in self.names for step in self.steps]
        self.step_s = median(durations) if durations else 0.0
        self.spread_s = max(self._spread(), _NOISE_SHARE * self.step_s, 1e-9)

    def is_slow(self, excess_s: float) -> bool:
        """Whether a step with that excess counts as slow."""
        return excess_s > max(Z_LIMIT * self.spread_s, LEAST_SHARE * self.step_s)

    def steadily_slow(self, rank: Rank) -> list[int]:
        """The steps in which a rank is the slowest of all, if that is no chance and it is a lot."""
        of_others = [self.own[other] for other in self.names if other != rank]
        if len(self.steps) < STEADY_STEPS or not of_others:
            return []
        if median(self.excess[rank]) <= STEADY_EXCESS * self.step_s:
            return []
        mine = self.own[rank]
        slowest = [
            step
            for step in self.steps
            if mine[step].own_s > max(other[step].own_s for other in of_others)
        ]
        is_chance = _chance(len(slowest), len(self.steps)) > STEADY_CHANCE
        return [] if is_chance else slowest

    def _spread(self) -> float:
        """What ranks, or one rank's steps, differ by, whichever is more."""
        apart = [d for values in self.excess.values() for d in values if d]
        quick = [d for d in apart if d < 0]
        between = min(sigma(apart), sigma(quick)) if len(self.names) > 2 else 0.0
        own = [[self.own[rank][step].own_s for step in self.steps] for rank in self.names]
        within = [sigma(t - median(times) for t in times) for times in own if times]
        return max(between, median(within) if within else 0.0)


def _chance(count: int, most: int) -> float:
    """How likely a fair coin shows heads so often or more."""
    ways: int = sum(math.comb(most, heads) for heads in range(count, most + 1))
    return float(ways / 2**most)


def measure(
    number: int,
    ranks: Sequence[RankTimes],
    own: Mapping[Rank, Mapping[int, OwnStep]],
    order: Arrivals,
    *,
    on_device: bool = False,
) -> tuple[list[RankPace], float]:
    """How each rank of a cohort does, and the spread it was measured by.

    Args:
        number: Which cohort it is.
        on_device: Whether these times are by the clocks of devices.
    """
    cohort = _Cohort(ranks, own)
    if not cohort.steps:
        return [], 0.0
    paces = [_pace(number, one, cohort, order, on_device=on_device) for one in ranks]
    return paces, cohort.spread_s


def shared_steps(
    ranks: Iterable[RankTimes], own: Mapping[Rank, Mapping[int, OwnStep]]
) -> list[int]:
    """The steps that all of these ranks have told."""
    return sorted(set.intersection(*(set(own[one.rank]) for one in ranks)))


def _pace(
    number: int, one: RankTimes, cohort: _Cohort, order: Arrivals, *, on_device: bool
) -> RankPace:
    rank, all_excess = one.rank, cohort.excess[one.rank]
    slow = [step for step, by in zip(cohort.steps, all_excess, strict=True) if cohort.is_slow(by)]
    if 2 * len(slow) < len(cohort.steps):
        slow = cohort.steadily_slow(rank) or slow
    counting = slow if len(slow) >= 2 else cohort.steps
    by_step = dict(zip(cohort.steps, all_excess, strict=True))
    excess = median(by_step[step] for step in counting)
    mine, late = cohort.own[rank], order.last.get(rank, ())
    return RankPace(
        rank=rank,
        host=one.host,
        device=one.device,
        cohort=number,
        own_s=median(mine[step].own_s for step in cohort.steps),
        blocked_s=median(mine[step].blocked_s for step in cohort.steps),
        excess_s=excess,
        z=excess / cohort.spread_s,
        slow_steps=len(slow),
        steps=len(cohort.steps),
        last_in=len(late),
        collectives=order.counted.get(rank, 0),
        late_s=middle(late),
        phases=_phases(rank, cohort, counting),
        costs=_costs(rank, cohort, counting),
        sm_mhz=one.sm_mhz,
        usual_mhz=middle(mhz for other, mhz in cohort.clocks.items() if other != rank),
        throttled=one.throttled,
        on_device=on_device,
    )


def _phases(rank: Rank, cohort: _Cohort, steps: Sequence[int]) -> dict[str, float]:
    """What each phase of a rank has above the cohort's middle."""
    found = {}
    for phase in STEP_PHASES:
        above = []
        for step in steps:
            times = [cohort.own[other][step].phases.get(phase, 0.0) for other in cohort.names]
            above.append(cohort.own[rank][step].phases.get(phase, 0.0) - lower_middle(times))
        if any(phase in cohort.own[rank][step].phases for step in steps):
            found[phase] = median(above)
    return found


def _costs(rank: Rank, cohort: _Cohort, steps: Sequence[int]) -> dict[str, float]:
    """What a rank has above the cohort's middle of all that every rank has counted."""
    found = {}
    for name in COSTS:
        above = []
        for step in steps:
            counts = [cohort.own[other][step].costs.get(name) for other in cohort.names]
            known = [count for count in counts if count is not None]
            mine = cohort.own[rank][step].costs.get(name)
            if mine is not None and len(known) == len(counts):
                above.append(mine - lower_middle(known))
        if above:
            found[name] = median(above)
    return found
