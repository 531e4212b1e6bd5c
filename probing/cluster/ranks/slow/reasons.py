"""What a rank's extra time comes of, where its process and the kernel have counted something.

Rules of this file: pure. Only what is a good part of the extra time is named; what was not counted
is not guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....units import duration
from .pace import RankPace

_SHARE = 0.1
"""What part of the extra time garbage collection must be to be named."""
_MOST = 0.5
"""What part of it must be computing, or not computing, to be named."""
_SLOWER = 0.05
"""By what part its device's clock must be below the others' to be named."""
_LEAST_SWITCHES = 1.0
_TAKEN_S = 0.02
"""What the processor is taken for at one time, at most, but by a limit or by many others: a longer
time without it is not told to be of that."""
_LEAST_FAULTS = 1.0


def reasons(pace: RankPace) -> Iterator[str]:
    """Clauses that fit behind `of that`, the surest first."""
    costs, excess = pace.costs, pace.excess_s
    if excess <= 0:
        return
    yield from _clock(pace)
    collected = costs.get("gc_s", 0.0)
    if collected >= _SHARE * excess:
        yield f"garbage collection took {duration(collected)} more than on others"
    faults = costs.get("major_faults", 0.0)
    if faults >= _LEAST_FAULTS:
        yield f"{faults:,.0f} more page faults were read from a disk"
    computed = costs.get("cpu_s")
    if computed is None:
        return
    if computed - collected >= _MOST * excess:
        yield (
            f"its thread computed for {duration(computed - collected)} more: more work, or a slower"
            " processor"
        )
    elif (left := _without_processor(pace)) >= _MOST * excess:
        yield from _off_processor(pace, left)


def is_taken(pace: RankPace) -> bool:
    """Whether others have had its thread's processor for most of its extra time."""
    left, taken = _without_processor(pace), pace.costs.get("involuntary_switches", 0.0)
    return left >= _MOST * pace.excess_s > 0 and taken * _TAKEN_S >= _MOST * left


def _without_processor(pace: RankPace) -> float:
    """Seconds of its extra time in which its thread did not compute; 0 where that is not known."""
    costs = pace.costs
    if pace.on_device or "cpu_s" not in costs:
        return 0.0
    return pace.excess_s - max(costs["cpu_s"], costs.get("gc_s", 0.0))


def _clock(pace: RankPace) -> Iterator[str]:
    """Its device is slower than those of the others."""
    mhz, usual = pace.sm_mhz, pace.usual_mhz
    if mhz is None or usual is None or mhz > (1 - _SLOWER) * usual:
        return
    why = f", held down by {pace.throttled.replace(';', ', ')}" if pace.throttled else ""
    yield f"its device runs at {mhz:,.0f} MHz where others have {usual:,.0f}{why}"


def _off_processor(pace: RankPace, seconds: float) -> Iterator[str]:
    """Why a thread did not compute that others let compute."""
    taken, left = (pace.costs.get(f"{how}_switches") for how in ("involuntary", "voluntary"))
    if taken is None or left is None:
        return
    if is_taken(pace):
        yield (
            f"the processor was taken from its thread {taken:,.0f} times more, for"
            f" {duration(seconds)}: other threads or processes want it,"
            " or its CPU limit is reached (throttled)"
        )
    elif left < _LEAST_SWITCHES:
        yield (
            f"its thread did not compute for {duration(seconds)} more, in no more waits than the"
            " others: in longer ones (a sleep, a disk, a lock), or it was held up (a CPU limit, or"
            " steal on its machine)"
        )
