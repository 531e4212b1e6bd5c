"""Which ranks hold up a job: those whose own work takes longest, step after step.

Rules of this file: pure. Ranks are compared with those that do the same work; see `cohorts`.
Slowness must show in at least half of the steps; see `pace`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from ....messages.frozen import InNotebooks, dataclass
from ..naming import Rank, in_order
from .arrivals import arrivals
from .clocks import Clocks, align_clocks
from .cohorts import cohorts_of
from .device_time import device_steps, waits_on_devices
from .own_time import own_steps
from .pace import LEAST_STEPS, RankPace, measure, shared_steps
from .robust import middle
from .times import RankTimes

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerReport(InNotebooks):
    """Who holds up a job, if anybody.

    Attributes:
        ranks: How each rank does, in their order.
        cohorts: The ranks that were compared with each other.
        alone: Ranks that there was nobody to compare with.
        step_s: How long a step takes, in the middle.
        spread_s: The standard deviation of own times that ranks were measured by; the largest of
            the cohorts'.
        first_step: The first of the steps that were compared, and the last one.
        slow_hosts: Hosts all of whose ranks are stragglers, where there are others.
        slow_devices: Numbers of devices that are slow on every host, where others are not.
        has_collectives: Whether waiting for others could be told from work.
        on_device: Whether steps were measured by the clocks of the ranks' devices; False where
            their waiting there is not known; None where it plays no part.
    """

    ranks: tuple[RankPace, ...]
    cohorts: tuple[tuple[Rank, ...], ...]
    alone: tuple[Rank, ...]
    clocks: Clocks
    step_s: float | None
    spread_s: float | None
    first_step: int | None
    last_step: int | None
    slow_hosts: tuple[str, ...] = ()
    slow_devices: tuple[int, ...] = ()
    has_collectives: bool = False
    on_device: bool | None = None

    @property
    def stragglers(self) -> tuple[RankPace, ...]:
        """The ranks to blame, the worst first."""
        found = [pace for pace in self.ranks if pace.is_straggler]
        return tuple(sorted(found, key=lambda pace: -pace.excess_s))

    @property
    def steps(self) -> int:
        """How many steps were compared."""
        return max((pace.steps for pace in self.ranks), default=0)


def find_stragglers(ranks: Sequence[RankTimes]) -> StragglerReport:
    """Measure every rank against those that do the same work."""
    clocks = align_clocks(ranks)
    own, order = own_steps(ranks, clocks), arrivals(ranks, clocks)
    groups, on_device = cohorts_of(ranks), device_steps(ranks)
    compared = [group for group in groups if len(group) > 1]
    timed = [group for group in compared if len(shared_steps(group, on_device)) >= LEAST_STEPS]
    for group in timed:
        own.update({one.rank: on_device[one.rank] for one in group})
    paces: dict[Rank, RankPace] = {}
    spreads, steps = [], set()
    for number, group in enumerate(compared):
        found, spread = measure(number, group, own, order, on_device=group in timed)
        paces.update({pace.rank: pace for pace in found})
        spreads += [spread] if found else []
        steps |= set(shared_steps(group, own))
    return StragglerReport(
        ranks=tuple(paces[rank] for rank in in_order(paces)),
        cohorts=tuple(in_order(one.rank for one in group) for group in compared),
        alone=in_order(one.rank for group in groups if len(group) == 1 for one in group),
        clocks=clocks,
        step_s=middle(step.duration_s for of_rank in own.values() for step in of_rank.values()),
        spread_s=max(spreads, default=None),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        slow_hosts=_all_slow(paces.values(), lambda pace: pace.host or None),
        slow_devices=_slow_devices(paces.values()),
        has_collectives=any(one.collectives for one in ranks),
        on_device=True if timed else False if waits_on_devices(ranks) else None,
    )


def _all_slow(paces: Iterable[RankPace], name: Callable[[RankPace], K | None]) -> tuple[K, ...]:
    """The names that only stragglers go by, at least two of them, where others are none."""
    groups: dict[K, list[bool]] = {}
    for pace in paces:
        key = name(pace)
        if key is not None:
            groups.setdefault(key, []).append(pace.is_straggler)
    slow = [key for key, flags in groups.items() if len(flags) > 1 and all(flags)]
    return tuple(slow) if len(slow) < len(groups) else ()


def _slow_devices(paces: Iterable[RankPace]) -> tuple[int, ...]:
    """Numbers of devices that are slow on every host, where there are several."""
    known = list(paces)
    if len({pace.host for pace in known}) < 2:
        return ()
    return _all_slow(known, lambda pace: pace.device)
