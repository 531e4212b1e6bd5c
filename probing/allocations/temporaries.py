"""The high-water mark of what is there for a moment only, by module.

Rules of this file: pure functions of a history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..messages.frozen import dataclass
from .history import Allocation, History

OUTSIDE = "(outside any module)"
_PASSING = {None, "temporary"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryPeak:
    """The most that was in use at one time of what nothing held as a step ended.

    Attributes:
        module: In whose call it was made; None for all modules together.
        count: How often such memory was handed out.
    """

    module: str | None
    peak_bytes: int
    count: int


def temporary_peaks(history: History) -> tuple[TemporaryPeak, ...]:
    """Of all together first, then of each module, the largest first."""
    own: dict[str, list[Allocation]] = defaultdict(list)
    for one in history.allocations:
        if not one.is_older and one.event.category in _PASSING and one.end is not None:
            own[one.event.module or OUTSIDE].append(one)
    found = [
        TemporaryPeak(module=module, peak_bytes=_peak(those), count=len(those))
        for module, those in own.items()
    ]
    found.sort(key=lambda each: (-each.peak_bytes, each.module or ""))
    everything = [one for those in own.values() for one in those]
    if not everything:
        return ()
    total = TemporaryPeak(module=None, peak_bytes=_peak(everything), count=len(everything))
    return (total, *found)


def _peak(allocations: Iterable[Allocation]) -> int:
    """The most of some allocations that was in use at one time."""
    changes: dict[int, int] = defaultdict(int)
    for one in allocations:
        changes[one.start] += one.event.bytes
        if one.end is not None:
            changes[one.end] -= one.event.bytes
    level = most = 0
    for at in sorted(changes):
        level += changes[at]
        most = max(most, level)
    return most
