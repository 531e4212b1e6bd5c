"""How far the clocks of hosts are apart, told by the ends of collectives.

Rules of this file: pure. A collective that nobody can leave before all have come ends at nearly the
same moment on all ranks, so what its ends differ by, in the median over many, is what the clocks
differ by. Ranks of one host share its clock. What is left after that is the error bar of every
comparison of moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from statistics import median

from ....messages.frozen import dataclass
from ..naming import Rank
from .robust import sigma
from .times import RankTimes

MEETING_OPS = frozenset(
    {
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "reduce_scatter",
        "reduce_scatter_tensor",
    }
)
"""What no rank can leave before all have come."""

Meeting = tuple[str, int]
"""A process group and the number of a collective in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks of a job's hosts.

    Attributes:
        offsets_s: By how much each host's clock is ahead of the middle of all.
        error_s: The standard deviation of what remains; None where nothing tells.
        meetings: How many collectives told.
        strange_hosts: Hosts that share no collective with the others.
    """

    offsets_s: Mapping[str, float] = field(default_factory=dict)
    error_s: float | None = None
    meetings: int = 0
    strange_hosts: tuple[str, ...] = ()

    def aligned_s(self, rank: RankTimes, moment_ns: int, origin_ns: int) -> float:
        """A moment of a rank by the common clock, in seconds since an origin."""
        return (moment_ns - origin_ns) * 1e-9 - self.offsets_s.get(rank.host, 0.0)


def align_clocks(ranks: Sequence[RankTimes]) -> Clocks:
    """The clocks of the hosts that these ranks are on."""
    hosts = {one.host for one in ranks}
    ends = _ends(ranks)
    host_of = {one.rank: one.host for one in ranks}
    spans = {key: len({host_of[rank] for rank in at}) for key, at in ends.items()}
    widest = max(spans.values(), default=0)
    met = {key: at for key, at in ends.items() if spans[key] == widest}
    middles = {key: median(at.values()) for key, at in met.items()}
    gaps: dict[str, list[float]] = {host: [] for host in hosts}
    for key, at in met.items():
        for rank, end in at.items():
            gaps[host_of[rank]].append(end - middles[key])
    offsets = {host: median(values) for host, values in gaps.items() if values}
    if widest < 2:  # one clock: what its ranks' ends differ by is no difference of clocks
        offsets = dict.fromkeys(offsets, 0.0)
    left = [gap - offsets[host] for host, values in gaps.items() for gap in values]
    return Clocks(
        offsets_s=offsets,
        error_s=sigma(left) if left else None,
        meetings=len(met),
        strange_hosts=tuple(sorted(hosts - set(offsets))) if len(hosts) > 1 else (),
    )


def _ends(ranks: Sequence[RankTimes]) -> dict[Meeting, dict[Rank, float]]:
    """When each rank left each collective, in seconds, of those that all known ranks have left."""
    origin = min((c.start_ns for one in ranks for c in one.collectives), default=0)
    found: dict[Meeting, dict[Rank, float]] = {}
    sizes: dict[Meeting, int] = {}
    for one in ranks:
        for c in one.collectives:
            if c.end_ns is not None and c.op in MEETING_OPS:
                found.setdefault((c.group, c.seq), {})[one.rank] = (c.end_ns - origin) * 1e-9
                sizes[c.group, c.seq] = c.size or len(ranks)
    return {key: at for key, at in found.items() if len(at) >= min(sizes[key], len(ranks)) > 1}
