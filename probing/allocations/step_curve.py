"""The memory of one recorded step over time, and what it would be with a batch of another size.

Rules of this file: pure functions of a recording. What a step makes up to the end of its last
backward pass grows with the batch; what was there before it does not, nor do gradients and state
of the optimizer, nor what the optimizer makes for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from .history import Allocation, history_of
from .recording import Recording

_LASTING = frozenset({"parameters", "gradients", "optimizer_state", "buffers"})
_UNKNOWN = "temporary"


class Change(NamedTuple):
    """Memory that is handed out, or given back.

    Attributes:
        at: The number of the event; 0 for all that was there as the step began.
        bytes: How much; negative where it is given back.
        scales: Whether it grows with the batch.
    """

    at: int
    bytes: int
    category: str
    scales: bool


class StepPeak(NamedTuple):
    """The most that a step has in use.

    Attributes:
        phase: When that is: ``forward``, ``backward`` or ``optimizer``.
        parts: What it consists of, by category.
    """

    bytes: int
    phase: str
    parts: dict[str, int]


class StepCurve:
    """What was in use on one device during a step.

    Attributes:
        step: The training step.
    """

    def __init__(self, step: int, changes: Iterable[Change]) -> None:
        self.step = step
        self._changes = sorted(changes, key=lambda change: change.at)

    def peak(self, ratio: float = 1.0) -> StepPeak:
        """The most in use, were the batch so many times as large."""
        level = most = 0.0
        peak_at = 0
        for change, after in pairwise([*self._changes, None]):
            assert change is not None
            level += change.bytes * (ratio if change.scales else 1.0)
            if level > most and (after is None or after.at != change.at):
                most, peak_at = level, change.at
        parts: Counter[str] = Counter()
        for change in self._changes:
            if change.at <= peak_at:
                size = change.bytes * (ratio if change.scales else 1.0)
                parts[change.category] += round(size)
        found = {name: size for name, size in parts.items() if size > 0}
        return StepPeak(sum(found.values()), self._phase(peak_at), found)

    def _phase(self, at: int) -> str:
        """Activations are made in a forward pass and let go of in a backward pass."""
        own = [change for change in self._changes if change.category == "activations" and change.at]
        before = [change for change in own if change.at <= at]
        if before and before[-1].bytes > 0:
            return "forward"
        return "backward" if len(before) < len(own) else "optimizer"


def curves_of(recording: Recording, device: int) -> tuple[StepCurve, ...]:
    """Each step that was recorded from its beginning to its end."""
    allocations = history_of(recording, device).allocations
    return tuple(
        [
            StepCurve(step, _changes(allocations, begin, end))
            for (step, begin), (_, end) in pairwise(recording.marks)
        ]
    )


def _changes(allocations: Iterable[Allocation], begin: int, end: int) -> Iterable[Change]:
    """What a step that lasted from `begin` to `end` has changed.

    The last activation to go tells the end of the last backward pass.
    """
    own = [one for one in allocations if _is_there(one, begin, end)]
    backward_end = max(
        (
            one.freed_ns
            for one in own
            if one.event.category == "activations" and one.freed_ns and one.freed_ns <= end
        ),
        default=end,
    )
    for one in own:
        made_ns = 0 if one.is_older else (one.event.time_ns or 0)
        is_new = made_ns >= begin
        category = one.event.category or _UNKNOWN
        scales = is_new and made_ns <= backward_end and category not in _LASTING
        yield Change(one.start if is_new else 0, one.event.bytes, category, scales)
        if one.end is not None and (one.freed_ns is None or one.freed_ns < end):
            yield Change(one.end, -one.event.bytes, category, scales)


def _is_there(one: Allocation, begin: int, end: int) -> bool:
    """Whether memory was in use at some time of a step.

    Of what was there before the recording it is seen as a step ends that it has gone meanwhile.
    """
    made_ns = 0 if one.is_older else (one.event.time_ns or 0)
    is_freed_before = one.end is not None and (one.freed_ns or 0) <= begin
    return made_ns < end and not is_freed_before
