"""A rank's own time by the clock of its device, where ranks wait for each other there.

Rules of this file: pure. Where a device does the collectives, the host only queues them: it stands
still wherever it waits for its device next, in all ranks for equally long. What a device takes for
a collective is its waiting and the transfer; the rank that comes last waits for none, so the least
of all ranks is the transfer. Only steps count in which all ranks have timed all of their
collectives: one that was not, as those that nobody waits for at once, may hide any wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..naming import Rank
from .clocks import Meeting
from .own_time import OwnStep
from .times import DeviceStep, RankTimes


def device_steps(ranks: Sequence[RankTimes]) -> dict[Rank, dict[int, OwnStep]]:
    """The own time of those steps of every rank in which its waiting on the device is known."""
    waits = _waits(ranks)
    found: dict[Rank, dict[int, OwnStep]] = {one.rank: {} for one in ranks}
    for one in ranks:
        for step in one.device_steps:
            own = [waits.get((one.rank, meeting)) for meeting in step.took_s]
            known = [wait for wait in own if wait is not None]
            if own and len(known) == len(own):
                found[one.rank][step.step] = OwnStep(
                    duration_s=step.device_s,
                    blocked_s=sum(known),
                    phases=step.phases,
                    costs=step.costs,
                )
    return found


def waits_on_devices(ranks: Sequence[RankTimes]) -> bool:
    """Whether ranks use devices, and it is not on record how long some were kept waiting."""
    uses = any(step.device_s is not None for one in ranks for step in one.steps)
    return uses and any(c.blocked_s is None for one in ranks for c in one.collectives)


def _waits(ranks: Sequence[RankTimes]) -> dict[tuple[Rank, Meeting], float]:
    """How long each rank has waited in each collective that all of its ranks have timed."""
    took: dict[Meeting, dict[Rank, float]] = {}
    sizes: dict[Meeting, int] = {}
    for one in ranks:
        for step in one.device_steps:
            _gather(took, sizes, one, step)
    return {
        (rank, meeting): seconds - min(by_rank.values())
        for meeting, by_rank in took.items()
        if len(by_rank) == sizes[meeting]
        for rank, seconds in by_rank.items()
    }


def _gather(
    took: dict[Meeting, dict[Rank, float]],
    sizes: dict[Meeting, int],
    one: RankTimes,
    step: DeviceStep,
) -> None:
    """Add what one rank has timed in one step."""
    for meeting, (seconds, size) in step.took_s.items():
        sizes[meeting] = size
        if seconds is not None:
            took.setdefault(meeting, {})[one.rank] = seconds
