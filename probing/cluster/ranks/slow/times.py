"""What a rank spent its time on, as its tables tell it.

Rules of this file: pure; the records that the other files of this package reckon with. Seconds are
durations by a monotonic clock, nanoseconds are moments by the clock of the rank's own host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field

from ....messages.frozen import dataclass
from ..naming import Rank

COSTS = ("cpu_s", "gc_s", "major_faults", "voluntary_switches", "involuntary_switches")
"""Columns of `python.steps` that tell what the training thread was given and what held it up."""
MESSAGES = frozenset({"send", "recv"})
"""What only two ranks do, each pair numbering its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one rank.

    Attributes:
        phases: How long each phase took that there was.
        sync_s: How long other ranks were waited for in the backward pass and from there to the
            optimizer, which is no part of these phases; None where that was not told apart.
        costs: What was counted beside time, of `COSTS`; without what was not counted.
        device_s: What its device took for it; None without one.
    """

    step: int
    start_ns: int
    duration_s: float
    phases: Mapping[str, float] = field(default_factory=dict)
    sync_s: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    device_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStep:
    """One step whose collectives were timed on the device.

    Attributes:
        phases: How long the host was in each phase.
        took_s: By group and number of each collective what it took there, waiting included, or
            None where that was not timed, and how many ranks take part in it.
    """

    step: int
    device_s: float
    phases: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    took_s: Mapping[tuple[str, int], tuple[float | None, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective or message, as one rank saw it.

    Attributes:
        seq: Which of its group's it is.
        size: How many ranks the group has; None where unknown.
        end_ns: None while it is open.
        blocked_s: How long the program stood still for it; None where unknown.
        is_async: Whether the program went on meanwhile.
        peer: The other rank of a message, by its number in the job; None where unknown.
    """

    group: str
    seq: int
    op: str
    step: int
    start_ns: int
    end_ns: int | None
    size: int | None = None
    blocked_s: float | None = None
    is_async: bool = False
    peer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a rank was in a phase."""

    phase: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """What one rank has told.

    Attributes:
        job: The job that it is of; None where it names none.
        number: Its number in that job, by which others name it; None where it has none.
        device: The number of its device on its host; None where unknown.
        device_steps: The last steps that were timed there.
        sm_mhz: The clock of that device's multiprocessors lately; None where unknown.
        throttled: What held it down; None where nothing did.
        spans: When it was in which phase, in the order of time.
    """

    rank: Rank
    job: str | None = None
    number: int | None = None
    host: str = ""
    device: int | None = None
    steps: tuple[Step, ...] = ()
    collectives: tuple[Collective, ...] = ()
    spans: tuple[Span, ...] = ()
    device_steps: tuple[DeviceStep, ...] = ()
    sm_mhz: float | None = None
    throttled: str | None = None

    def of_last(self, count: int) -> RankTimes:
        """What it has told of its last steps, so many."""
        first = max((step.step for step in self.steps), default=0) - count + 1
        steps = tuple(step for step in self.steps if step.step >= first)
        begin_ns = min((step.start_ns for step in steps), default=0)
        return dataclasses.replace(
            self,
            steps=steps,
            collectives=tuple(c for c in self.collectives if c.step >= first),
            spans=tuple(span for span in self.spans if span.start_ns >= begin_ns),
            device_steps=tuple(step for step in self.device_steps if step.step >= first),
        )
