"""Writes the rows of python.memory: what is in use at the phases of each step.

Rules of this file: used by the training threads, a few times per micro-batch; reads peaks and never
resets them, never waits for the accelerator, unless a mark asks for that. What it costs is added
up, and when that is more than its share of a step, some steps have no rows; not so while more and
more is in use.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....ring.format import DONE, NULL_INT, NULL_NAME
from ....ring.writer import RingWriter
from ....safety.guard import Guard
from ....script.marks import Cleaning
from ....tables import MEMORY_PHASES
from ..accelerator import Accelerator, DeviceTotals
from ..shared.interval import Interval
from ..shared.recording import Recording
from ..stand_in import PlainSource
from ..steps.phases import BACKWARD, FORWARD
from .host_figures import HostFiles
from .sampler import MemorySampler

if TYPE_CHECKING:
    from ...on_demand.armed_job import ArmedJob

ATTACH, BEFORE_FORWARD, AFTER_FORWARD, AFTER_BACKWARD, AFTER_STEP, MARK = range(len(MEMORY_PHASES))
PART_OF_BUDGET = 0.05
_MOST_LABELS = 1000
"""How many labels of marks are kept apart; those beyond are rows without one."""
_HOST = "cpu"
_NO_CLEANING = Cleaning()
_NO_FIGURES: tuple[int, ...] = (NULL_INT,) * 6
_NO_TOTALS = DeviceTotals(NULL_INT, NULL_INT)


class MemoryRows(PlainSource):
    """The rows of the micro-batch in progress, and those around it.

    Of each phase a micro-batch has one row: when a phase comes again, such as a second root module
    or a second loss, the row is written again. So a row is what was in use when the last of them
    had ended, and yet is there as soon as the first has.

    Attributes:
        cost_ns: What the rows of the step in progress have cost so far.
        last_ns: What those of the last step that has any have cost.
        collected: How many objects the last collection of garbage found; `NULL_INT` before one.
    """

    def __init__(
        self,
        recording: Recording,
        ring: RingWriter,
        accelerator: Accelerator,
        sampler: MemorySampler,
        share: float,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        processor_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """Begin without recording.

        Args:
            share: The part of a step that all recording may cost.
            processor_clock: Tells costs: that other programs have a core meanwhile is none.
        """
        self._recording = recording
        self._ring = ring
        self._accelerator = accelerator
        self._sampler = sampler
        self._clock = clock
        self._processor_clock = processor_clock
        self._host = HostFiles()
        self._interval = Interval(share * PART_OF_BUDGET)
        self._wants_totals = False
        self._devices: set[str] = set()
        self._labels: set[str] = set()
        self._words: dict[int, int] = {}
        self._is_due = False
        self._next = 0  # the step in which rows are due
        self.cost_ns = self.last_ns = 0
        self._wanted_by: Callable[[], ArmedJob | None] | None = None
        self.collected = NULL_INT
        self.is_on = False
        self.guard = Guard("memory", self.stop)
        self.guard.on_fault = ring.count_dropped

    def start(self) -> None:
        """Record from now on; the first row is the baseline."""
        self.is_on = True
        self.guard.run(self._attach)

    def stop(self) -> None:
        """Record no more."""
        self.is_on = self._is_due = False
        self._words.clear()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._host.close()

    def note(self) -> str | None:
        """What it cannot measure."""
        return "; ".join(self._accelerator.notes()) or None

    def want_all(self, job: ArmedJob) -> None:
        """Have rows of every step, whatever they cost, until a job is over."""
        self._wanted_by = weakref.ref(job)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody has asked for rows of every step."""
        if self._wanted_by is None:
            return False
        job = self._wanted_by()
        return self.is_on and job is not None and not job.is_over

    def step_began(self, step: int) -> bool:
        """A step begins; returns whether it gets rows, and what follows is to be told.

        It does, whatever it costs, after one in which more was in use than ever: so the last rows
        of a process that is killed at its limit are new. There are few such steps before that.
        """
        is_due = step >= self._next
        if self._sampler.has_grown:
            is_due = True
            self._host.expire()
        if self._wanted_by is not None:
            is_due = is_due or self.is_wanted
        self._is_due = is_due and self.is_on
        if self._is_due:
            self.cost_ns = 0
            self._words.clear()
        return self._is_due

    def batch_changed(self) -> None:
        """A micro-batch begins, or has ended."""
        self._words.clear()

    def step_ended(self, took_ns: int) -> None:
        """The step has ended."""
        if self._is_due or self.is_wanted:
            self._words.clear()
            self.guard.run(self._write, AFTER_STEP, self._recording.step)
            self.last_ns = self.cost_ns
            self._next = self._recording.step + self._interval.taken(self.last_ns, took_ns)
            self._is_due = False

    def entered(self, phase: int) -> None:
        """A phase begins that is not within another one."""
        if not self._is_due:
            return
        if phase == FORWARD and BEFORE_FORWARD not in self._words:
            self.guard.run(self._write, BEFORE_FORWARD, self._recording.step)
        elif phase == BACKWARD and AFTER_FORWARD in self._words:
            self.guard.run(self._write, AFTER_FORWARD, self._recording.step)

    def left(self, phase: int) -> None:
        """Such a phase has ended."""
        if not self._is_due:
            return
        if phase == FORWARD:
            self.guard.run(self._write, AFTER_FORWARD, self._recording.step)
        elif phase == BACKWARD:
            self.guard.run(self._write, AFTER_BACKWARD, self._recording.step)

    def seen(self, label: str, cleaning: Cleaning = _NO_CLEANING) -> None:
        """See `marks.see_memory`."""
        if self.is_on:
            self.guard.run(self._mark, label, cleaning)

    def _mark(self, label: str, cleaning: Cleaning) -> None:
        """The script or a person wants a row."""
        took_ns = NULL_INT
        if cleaning.gc or cleaning.empty_cache:
            from .cleaning import clean

            took_ns, self.collected = clean(self._accelerator, cleaning)
            self._wants_totals = True
        name = str(label)  # whatever the script gives
        if len(self._labels) < _MOST_LABELS:
            self._labels.add(name)
        known = self._recording.names.intern(name) if name in self._labels else NULL_NAME
        self._write(MARK, self._recording.step, known, took_ns)
        if cleaning.reset_peaks:
            self._accelerator.reset_peaks()

    def _attach(self) -> None:
        """Recording begins."""
        self._devices.clear()
        self._words.clear()
        self._write(ATTACH, self._recording.step)

    def _write(self, phase: int, step: int, label: int = NULL_NAME, gc_ns: int = NULL_INT) -> None:
        """Take all figures now and write a row, or write it again."""
        start = self._processor_clock()
        device, figures = self._figures(self._clock())
        if device not in self._devices:
            self._devices.add(device)
            if device != _HOST and phase != ATTACH:
                self._put(ATTACH, step, NULL_NAME, device, (*figures, NULL_INT))
        self._put(phase, step, label, device, (*figures, gc_ns))
        took = self._processor_clock() - start
        self.cost_ns += took
        costs = self._recording.costs
        costs.count("memory", took, is_within=costs.clock is self._processor_clock)

    def _put(
        self, phase: int, step: int, label: int, device: str, figures: tuple[int, ...]
    ) -> None:
        """Write a row, or write it again; the columns in the order of the layout."""
        word = self._words.get(phase)
        if word is None:
            batch = self._recording.rows.micro_batch
            known = NULL_INT if batch is None or phase == ATTACH else batch
            word = self._ring.open_row(known, step, label, phase)
            self._ring.release_pages(word)
            if phase not in (ATTACH, MARK):
                self._words[phase] = word
        self._ring.close_row(word, DONE, self._recording.names.intern(device), *figures)

    def _figures(self, now_ns: int) -> tuple[str, tuple[int, ...]]:
        """Everything that can be known now: the device, and the columns from ``time_ns`` on."""
        device, own = _HOST, _NO_FIGURES  # the allocator and the whole device
        found = self._accelerator.memory_figures()
        if found is not None:
            device, *counts = found
            totals = self._accelerator.device_totals(fresh=self._wants_totals)
            own = (*counts, *(totals or _NO_TOTALS))
        self._wants_totals = False
        host = self._host
        return device, (now_ns, *own, *host.own_bytes(), *host.figures(now_ns))
