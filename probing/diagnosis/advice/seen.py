"""What was seen as memory ran out, as the rules of `shortage` and `batch` take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...messages.frozen import dataclass

LARGE = 0.25
"""A category of at least this part of all tensors is worth a suggestion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The memory at the ends of the last steps.

    Attributes:
        steps: How many of them.
        per_step: By how many bytes it grew from one to the next.
        fit: How well a straight line fits it, from 0 to 1.
    """

    steps: int
    per_step: float
    fit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What was seen as memory ran out; None for what was not measured.

    Attributes:
        is_host: Whether it was the host's memory.
        is_kill: Whether the kernel has killed the process, which then leaves no list of tensors.
        phase: As in python.ooms.
        bounded_by: As in python.ooms, or ``cgroup``.
        categories: Bytes of the tensors on the device, by category.
        dtypes: What most of those bytes are, by category.
        samples: Samples of the micro-batch.
        length: Tokens of each, where the batch is a matrix.
        micro_batches: Micro-batches of the last complete step.
        world_size: Processes of the job.
    """

    is_host: bool
    phase: str
    is_kill: bool = False
    bounded_by: str | None = None
    requested: int | None = None
    free: int | None = None
    total: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    resident: int | None = None
    categories: Mapping[str, int] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    samples: int | None = None
    length: int | None = None
    micro_batches: int | None = None
    world_size: int | None = None
    error: str = ""
    trend: Trend | None = None

    @property
    def tensors(self) -> int:
        """Bytes of all tensors on the device."""
        return sum(self.categories.values())

    def share(self, category: str) -> float:
        """The part of the tensors' bytes that is of a category."""
        return self.categories.get(category, 0) / self.tensors if self.tensors else 0.0

    def is_large(self, category: str) -> bool:
        """Whether a category is worth a suggestion."""
        return self.share(category) >= LARGE
