"""What a step cost the processor beside its time: the record that says why one was slow.

Rules of this file: runs in the training thread, twice per step: three calls of less than
a microsecond each. Python's collector is timed in whichever thread it runs: all others wait for it.
"""

from __future__ import annotations

import gc
import resource
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....safety.guard import Guard

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
"""The columns of python.steps, in the order of `Reading.until`."""


class Reading(NamedTuple):
    """What has been counted so far.

    Attributes:
        thread: Whose the counts are.
    """

    thread: int
    cpu_s: float
    process_cpu_s: float
    gc_ns: int
    minor_faults: int
    major_faults: int
    voluntary: int
    involuntary: int

    def until(self, later: Reading) -> Sequence[float | int] | None:
        """What lies between two readings; None where they are of different threads."""
        if self.thread != later.thread:
            return None
        return (
            later.cpu_s - self.cpu_s,
            later.process_cpu_s - self.process_cpu_s,
            (later.gc_ns - self.gc_ns) * _NS,
            later.minor_faults - self.minor_faults,
            later.major_faults - self.major_faults,
            later.voluntary - self.voluntary,
            later.involuntary - self.involuntary,
        )


class HostTimes:
    """Reads the clocks and counters of the training thread, and times Python's collector.

    Attributes:
        guard: What keeps a fault off the training, whose stderr Python would tell it.
    """

    def __init__(self) -> None:
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
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return Reading(
            threading.get_ident(),
            time.thread_time(),  # the kernel brings those of getrusage up to date at ticks only
            time.process_time(),
            self._gc_ns,
            used.ru_minflt,
            used.ru_majflt,
            used.ru_nvcsw,
            used.ru_nivcsw,
        )

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
