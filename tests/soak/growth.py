"""What the kernel says that a process holds, from second to second.

Rules of this file: reads /proc, touches nothing; a slope is the median of all slopes between two
points (Theil 1950, Sen 1968), so that single peaks do not count.
"""

from __future__ import annotations

import os
import random
import statistics
from dataclasses import dataclass, field

WARM_UP = 0.2
"""The part of a run that is not looked at: caches fill, pools grow to their size."""
_PAIRS = 100_000


@dataclass(slots=True)
class Series:
    """Values with their times, in seconds."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time_s: float, value: float) -> None:
        """One more."""
        self.times.append(time_s)
        self.values.append(value)

    def warm(self) -> list[tuple[float, float]]:
        """What came after the warm-up."""
        points = list(zip(self.times, self.values, strict=True))
        return points[int(WARM_UP * len(points)) :]

    def typical_first(self) -> float:
        """The median of the first quarter after the warm-up."""
        warm = self.warm()
        return statistics.median(value for _, value in warm[: max(1, len(warm) // 4)])

    def typical_last(self) -> float:
        """The median of the last quarter."""
        warm = self.warm()
        return statistics.median(value for _, value in warm[-max(1, len(warm) // 4) :])


def slope_per_hour(series: Series) -> float:
    """By how much a series grows in an hour, by the median of slopes between two of its points."""
    points = series.warm()
    draw = random.Random(0)
    pairs = (sorted(draw.sample(points, 2)) for _ in range(_PAIRS))
    return 3600 * statistics.median((y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairs)


class Watch:
    """What a process holds.

    Attributes:
        resident_kib: Memory that it shares with no file; what is mapped of a record is not in it.
        descriptors: Open files, sockets and so on.
        threads: Threads.
    """

    def __init__(self, pid: int) -> None:
        self._proc = f"/proc/{pid}"
        self.resident_kib = Series()
        self.descriptors = Series()
        self.threads = Series()

    def look(self) -> None:
        """Look once."""
        now = float(os.times().elapsed)
        with open(f"{self._proc}/status", encoding="ascii", errors="replace") as file:
            status = dict(line.split(":", 1) for line in file)
        self.resident_kib.add(now, float(status["RssAnon"].split()[0]))
        self.threads.add(now, float(status["Threads"]))
        self.descriptors.add(now, float(len(os.listdir(f"{self._proc}/fd"))))
