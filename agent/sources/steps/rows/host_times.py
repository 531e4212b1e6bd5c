"""What a step cost the processor beside its time: the record that says why one was slow.

Rules of this file: runs in the training thread, twice per step: three calls of less than
a microsecond each. Python's collector is timed in whichever thread it runs: all others wait for it.
"""

from __future__ import annotations

import gc
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

from .....ring.native import IN_C
from .....safety.guard import Guard

_NS = 1e-9
COLUMNS = (
    "cpu_s",
    "process_cpu_s",
    "gc_s",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
)
"""The columns of python.steps, in the order of `HostTimes.fill`."""


Used = tuple[int, float, float, int, int, int, int]
"""A thread; its processor time and the process's, its faults and switches, so far."""


Reading = tuple[Used, int]
"""The same, and how long the collector has run, in nanoseconds."""


_Fill = Callable[[list[object], int, Used, float], Used]


class HostTimes:
    """Reads the clocks and counters of the training thread, and times Python's collector.

    Attributes:
        guard: What keeps a fault off the training, whose stderr Python would tell it.
    """

    def __init__(self, *, in_c: bool = True) -> None:
        """Begin without timing the collector.

        Args:
            in_c: Whether the C part reads the clocks, where it was built.
        """
        is_in_c = in_c and IN_C is not None
        self._used: Callable[[], Used] = IN_C.used if is_in_c else used
        self._fill: _Fill = IN_C.fill_used if is_in_c else fill_used
        self.guard = Guard("garbage collection", self.stop)
        self._gc_ns = 0
        self._since_ns = 0

    def start(self) -> None:
        """Time the collector from now on."""
        if self._collected not in gc.callbacks:
            gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Time it no more."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
        self._since_ns = 0

    def read(self) -> Reading:
        """What has been counted so far; in the training thread."""
        return self._used(), self._gc_ns

    def fill(self, closing: list[object], place: slice, before: Reading | None) -> Reading:
        """Fill in what has been counted since an earlier reading; NULL of another thread's.

        Args:
            closing: The closing columns of a row.
            place: Where in them `COLUMNS` are.

        Returns:
            What has been counted so far.
        """
        if before is None:
            return self.read()
        gc_ns = self._gc_ns
        return self._fill(closing, place.start, before[0], (gc_ns - before[1]) * _NS), gc_ns

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        """The collector begins, or has ended."""
        try:
            now = time.perf_counter_ns()
            if phase == "start":
                self._since_ns = now
            elif self._since_ns:
                self._gc_ns += now - self._since_ns
                self._since_ns = 0
        except Exception:  # noqa: BLE001 - a clock that the program has put in place of Python's
            self.guard.fault()


def used() -> Used:
    """What the calling thread has used so far."""
    counts = resource.getrusage(resource.RUSAGE_THREAD)
    return (
        threading.get_ident(),
        time.thread_time(),  # the kernel brings those of getrusage up to date at ticks only
        time.process_time(),
        counts.ru_minflt,
        counts.ru_majflt,
        counts.ru_nvcsw,
        counts.ru_nivcsw,
    )


def fill_used(closing: list[object], first: int, before: Used, gc_s: float) -> Used:
    """Fill in what the calling thread has used since an earlier reading; NULL of another's.

    Args:
        closing: The closing columns of a row.
        first: Where in them `COLUMNS` begin.
        gc_s: How long the collector has run meanwhile.

    Returns:
        What it has used so far.
    """
    now = used()
    if before[0] == now[0]:
        cpu_s, process_cpu_s, *counts = [
            end - start for start, end in zip(before, now, strict=True)
        ][1:]
        closing[first : first + len(COLUMNS)] = (cpu_s, process_cpu_s, gc_s, *counts)
    return now
