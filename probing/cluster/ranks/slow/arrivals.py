"""Who comes last to collectives.

Rules of this file: pure. Waiting longest is what the ranks do that came first: the one to blame
has entered last. A collective counts where all its ranks are known, and only a lead that is
larger than the clocks' error makes somebody the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ....messages.frozen import dataclass
from ..naming import Rank
from .clocks import Clocks, Meeting
from .times import MESSAGES, RankTimes

_SIGMAS = 3.0
"""By how many standard deviations of the clocks the last must be behind the one before it."""
_LEAST_S = 50e-6
"""What the last must be behind at least: less than that is the order in which a system wakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """In which order ranks came to collectives.

    Attributes:
        last: For each rank by how much it was behind the middle of the others, in each
            collective that it was the last to enter.
        counted: To how many collectives each rank came, of those that count.
    """

    last: Mapping[Rank, tuple[float, ...]]
    counted: Mapping[Rank, int]


def arrivals(ranks: Sequence[RankTimes], clocks: Clocks) -> Arrivals:
    """In which order these ranks came to the collectives they share."""
    error = max(_LEAST_S, _SIGMAS * (clocks.error_s or 0.0))
    last: dict[Rank, list[float]] = {one.rank: [] for one in ranks}
    counted: dict[Rank, int] = dict.fromkeys(last, 0)
    for entries in entries_of(ranks, clocks).values():
        for rank in entries:
            counted[rank] += 1
        by_time = sorted(entries, key=lambda rank: entries[rank])
        latest = by_time[-1]
        if entries[latest] - entries[by_time[-2]] > error:
            others = median(entries[rank] for rank in by_time[:-1])
            last[latest].append(entries[latest] - others)
    return Arrivals(last={rank: tuple(by) for rank, by in last.items()}, counted=counted)


def entries_of(ranks: Sequence[RankTimes], clocks: Clocks) -> dict[Meeting, dict[Rank, float]]:
    """When each rank entered each collective that all of its ranks are known of."""
    origin = min((c.start_ns for one in ranks for c in one.collectives), default=0)
    found: dict[Meeting, dict[Rank, float]] = {}
    sizes: dict[Meeting, int] = {}
    for one in ranks:
        for c in one.collectives:
            if c.op in MESSAGES:
                continue
            key = (c.group, c.seq)
            found.setdefault(key, {})[one.rank] = clocks.aligned_s(one, c.start_ns, origin)
            sizes[key] = c.size or len(ranks)
    return {key: at for key, at in found.items() if len(at) == sizes[key] > 1}
