"""The series of python.memory that tell a leak from fragmentation and from what is outside torch.

Rules of this file: pure functions of rows. A figure that was not measured makes no point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...messages.frozen import dataclass
from .series import Point, Trend, classify
from .words import RESIDENT

Row = Mapping[str, Any]

MIB = 1 << 20

HISTORY = (
    "SELECT step, device, last(allocated_bytes ORDER BY seq) AS allocated_bytes,"
    " last(reserved_bytes ORDER BY seq) AS reserved_bytes,"
    " last(device_used_bytes ORDER BY seq) AS device_used_bytes,"
    " last(resident_bytes ORDER BY seq) AS resident_bytes,"
    " last(mapped_bytes ORDER BY seq) AS mapped_bytes,"
    " last(virtual_bytes ORDER BY seq) AS virtual_bytes"
    " FROM python.memory WHERE phase = 'after_step' GROUP BY step, device ORDER BY device, step"
)
"""One row per step and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A figure over the steps, and what it does.

    Attributes:
        name: What is measured.
        device: Where; None for the whole process.
    """

    name: str
    device: str | None
    trend: Trend


def _difference(of: str, less: str) -> Callable[[Row], float | None]:
    return lambda row: None if row[of] is None or row[less] is None else row[of] - row[less]


_ON_DEVICE: tuple[tuple[str, Callable[[Row], float | None], int], ...] = (
    ("allocated", lambda row: row["allocated_bytes"], 0),
    ("reserved, not allocated", _difference("reserved_bytes", "allocated_bytes"), 2 * MIB),
    ("outside of torch", _difference("device_used_bytes", "reserved_bytes"), 32 * MIB),
)
"""What each is called, how it is made, and what it gains and loses by itself: the allocator asks
for 2 MiB or more at a time, libraries and other processes for tens."""
_RESIDENT_RISE = 48 * MIB
"""16 MiB that a process gains and loses by itself, and twice as much again for code of our own: the
first questions that a process is asked load it while the training is on record."""


def series_of(rows: Sequence[Row]) -> tuple[Series, ...]:
    """Every series that was measured.

    Args:
        rows: Those of `HISTORY`.
    """
    found: list[Series] = []
    for device in dict.fromkeys(row["device"] for row in rows):
        own = [row for row in rows if row["device"] == device]
        for name, figure, least_rise in _ON_DEVICE:
            points = _points(own, figure)
            if points:
                trend = classify(points, least_rise=least_rise)
                found.append(Series(name=name, device=device, trend=trend))
    if not found:  # without an accelerator the process is all there is to see
        points = _points(rows, lambda row: row["resident_bytes"])
        if points:
            trend = classify(points, least_rise=_RESIDENT_RISE)
            found.append(Series(name=RESIDENT, device=None, trend=trend))
    return tuple(found)


def virtual_trend(rows: Sequence[Row]) -> Trend | None:
    """What the address space does: memory that was asked for long ago and is filled is in it."""
    points = _points(rows, lambda row: row["virtual_bytes"])
    return classify(points, least_rise=_RESIDENT_RISE) if points else None


def private_trend(rows: Sequence[Row]) -> Trend | None:
    """What the resident set does without pages of files and shared memory; None where not known."""
    points = _points(rows, _difference("resident_bytes", "mapped_bytes"))
    return classify(points, least_rise=_RESIDENT_RISE) if points else None


def _points(rows: Sequence[Row], figure: Callable[[Row], float | None]) -> list[Point]:
    pairs = [(row["step"], figure(row)) for row in rows]
    return [Point(step, float(value)) for step, value in pairs if value is not None]
