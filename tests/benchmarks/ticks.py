"""How long a process stood still, as a thread of its own noticed it.

Rules of this file: reads the file that ``programs/ticking.py`` writes; asks that process nothing.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .measures import Measure
from .processes import read_line, start_program

_AFTERWARDS_S = 0.05
_LEAST_S = 20e-6
"""Shorter gaps are not noted."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time: when it began and ended, in seconds of the clock all processes share."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Pause:
    """What something did to a process.

    Attributes:
        seconds: How long it took.
        gap_s: The longest gap meanwhile and shortly afterwards.
        quiet_s: The longest gap in as much time in which nothing was done.
    """

    seconds: float
    gap_s: float
    quiet_s: float


class Ticking:
    """A process whose gaps can be read.

    Attributes:
        pid: The process.
    """

    def __init__(self, pid: int, path: Path) -> None:
        self.pid = pid
        self._path = path

    def longest_gap(self, span: Span) -> float:
        """The longest time within a span, in seconds, in which its thread did not run."""
        data = self._path.read_bytes()
        written = int(np.frombuffer(data, np.uint64, 1)[0])
        noted = np.frombuffer(data, np.uint64, offset=8).reshape(-1, 2)[:written]
        ends, gaps = noted[:, 0] / 1e9, noted[:, 1] / 1e9
        # What lies in the span alone: a gap may have begun before it and ended after it.
        inside = np.minimum(ends, span.ended) - np.maximum(ends - gaps, span.began)
        return float(max(0.0, inside.max(initial=0.0)))

    def pause(self, do: Callable[[], object]) -> Pause:
        """Do something to it, then nothing for as long, and compare."""
        began = time.perf_counter()
        do()
        ended = time.perf_counter()
        time.sleep(_AFTERWARDS_S)
        asked = Span(began, ended + _AFTERWARDS_S)
        time.sleep(asked.seconds)
        quiet = Span(asked.ended, asked.ended + asked.seconds)
        return Pause(ended - began, self.longest_gap(asked), self.longest_gap(quiet))


@contextlib.contextmanager
def ticking(mode: str, home: Path, *, agent: bool) -> Iterator[Ticking]:
    """A training or a hung process, with or without an agent."""
    path = home / f"ticks-{mode}"
    path.unlink(missing_ok=True)
    with start_program("ticking", home, mode=mode, path=str(path), agent=agent) as process:
        try:
            if read_line(process) != "ready":
                raise RuntimeError("the program did not get ready")
            yield Ticking(process.pid, path)
        finally:
            process.kill()


def slowest_tick(what: str, pauses: Sequence[Pause]) -> Measure:
    """The longest gap as a multiple of that when nothing is done."""
    asked, quiet = (
        1e3 * statistics.median(gaps)
        for gaps in ([p.gap_s for p in pauses], [p.quiet_s for p in pauses])
    )
    return Measure(
        what=f"longest gap in the {what} / when nothing is done",
        unit="x",
        values=tuple(p.gap_s / max(p.quiet_s, _LEAST_S) for p in pauses),
        note=f"{asked:.2g} ms, at most {1e3 * max(p.gap_s for p in pauses):.2g};"
        f" when nothing is done {quiet:.2g} ms, at most {1e3 * max(p.quiet_s for p in pauses):.2g}",
    )
