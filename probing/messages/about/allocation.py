"""What travels about the recording of allocations."""

from __future__ import annotations

from ..frozen import dataclass
from ..limits import TimeLimit

MOST_ENTRIES = 100_000
"""The most events of one recording; the newest are kept."""
RECORD_STEPS = 10
"""How many steps are recorded on the CPU, unless another number is asked for."""
SNAPSHOT_STEPS = 3
"""The same, for a snapshot that nothing was recorded for beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """Begin or end the recording of allocations.

    Attributes:
        state: ``on`` or ``off``.
        steps: How many steps at most; only on the CPU.
        entries: How many events to keep, the newest.
    """

    state: str
    steps: int = RECORD_STEPS
    entries: int = MOST_ENTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """What has been recorded, or else the next steps.

    Attributes:
        steps: How many steps to record if nothing is; only on the CPU.
        entries: How many events to keep of those, the newest.
        timeout_s: How long to wait for the end of any one step.
        first_step: The first step to record; None for the next. Only on the CPU.
    """

    steps: int = SNAPSHOT_STEPS
    entries: int = MOST_ENTRIES
    timeout_s: TimeLimit | None = None
    first_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStatus:
    """How the recording of allocations stands.

    Attributes:
        how: ``allocator`` (the accelerator's) or ``profiler`` (torch.profiler, on the CPU).
        state: ``off``; ``waiting`` for the end of a step; ``running``; ``ending`` while it is
            written; ``recorded`` when it is over and no snapshot has been taken of it;
            ``refused``, then `reason` says why.
        steps: How many steps at most; None where there is no limit.
        done: How many of them have been recorded.
        entries: How many events are kept.
        step_s: What a recorded step takes, on average.
        plain_step_s: What the step before took.
    """

    how: str
    state: str
    steps: int | None = None
    done: int | None = None
    entries: int | None = None
    step_s: float | None = None
    plain_step_s: float | None = None
    reason: str | None = None
