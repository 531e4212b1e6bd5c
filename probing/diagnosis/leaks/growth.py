"""What has grown in the watched steps, added up in the way that is asked for.

Rules of this file: pure functions of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...messages.frozen import dataclass

Row = Mapping[str, Any]

PARTS = ("category", "module", "dtype", "device")
"""Columns of python.leak_growth by which it can be added up."""
WAYS = (*PARTS, "phase")
OUTSIDE = "(outside any module)"

PHASES = {
    "before_forward": "up to the forward pass",
    "after_forward": "forward",
    "after_backward": "backward",
    "after_step": "optimizer, to the step's end",
}
"""What each phase of python.memory ends."""
PHASES_OF_STEPS = (
    "SELECT step, phase, device, allocated_bytes, resident_bytes FROM python.memory"
    " WHERE step BETWEEN {first} AND {last} AND phase IN ({phases}) ORDER BY seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Storages that have something in common.

    Attributes:
        name: What it is, such as the name of a module.
        first_bytes: What they took before the watched steps.
        last_bytes: What they take after them.
        tensors: By how many their number has grown.
    """

    name: str
    first_bytes: int
    last_bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """What a phase does to the memory in use.

    Attributes:
        name: One of the values of `PHASES`.
        figure: Of what: ``allocated``, or ``resident set`` without an accelerator.
        bytes_per_step: By how much there is more as it ends; on average over the watched steps.
    """

    name: str
    figure: str
    bytes_per_step: float


def grouped(rows: Sequence[Row], by: str) -> tuple[Group, ...]:
    """What has changed, the largest growth first.

    Args:
        rows: Those of python.leak_growth.
        by: One of `PARTS`.
    """
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        figures = sums[row[by] or OUTSIDE]
        figures[0] += row["bytes_before"]
        figures[1] += row["bytes_after"]
        figures[2] += row["tensors_after"] - row["tensors_before"]
    found = [
        Group(name=name, first_bytes=first, last_bytes=last, tensors=tensors)
        for name, (first, last, tensors) in sums.items()
        if first != last or tensors
    ]
    return tuple(
        sorted(found, key=lambda group: (group.first_bytes - group.last_bytes, group.name))
    )


def phase_changes(rows: Sequence[Row], first: int, last: int) -> tuple[PhaseChange, ...]:
    """What each phase does, in the order of a step; none where steps are missing from the record.

    A phase that is there several times in a step counts with all of them.

    Args:
        rows: Of python.memory, in the order of time, from the end of the step before the first.
        first: The first watched step.
        last: The last one.
    """
    devices = [row["device"] for row in rows]
    main = max(dict.fromkeys(devices), key=devices.count, default=None)
    own = [row for row in rows if row["device"] == main]
    is_allocated = all(row["allocated_bytes"] is not None for row in own)
    column = "allocated_bytes" if is_allocated else "resident_bytes"
    ends = {row["step"]: place for place, row in enumerate(own) if row["phase"] == "after_step"}
    if not all(step in ends for step in range(first - 1, last + 1)):
        return ()
    window = own[ends[first - 1] : ends[last] + 1]
    if any(row[column] is None for row in window):
        return ()
    sums = dict.fromkeys(PHASES, 0)
    for before, after in pairwise(window):
        sums[after["phase"]] += after[column] - before[column]
    figure = "allocated" if is_allocated else "resident set"
    return tuple(
        PhaseChange(name=PHASES[phase], figure=figure, bytes_per_step=change / (last - first + 1))
        for phase, change in sums.items()
    )
