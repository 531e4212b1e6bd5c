"""Records what the script tells of itself by the functions of `probing.script.marks`.

Rules of this file: runs in whichever thread marks something; keeps no tensor and no other object.
"""

from __future__ import annotations

import time
from typing import Any

from ....ring.format import DONE, FAILED, NULL_FLOAT
from ....ring.writer import RingWriter
from ....safety.guard import Guard, pass_on
from ....script import marks
from ..accelerator import Accelerator
from ..memory.memory_rows import MemoryRows
from ..numbers.number import Missed, Number, read_number
from ..shared.recording import Recording
from ..stand_in import PlainSource
from .boundary import Boundary
from .progress import Progress
from .rows.late_rows import LateRows

_MOST_NAMES = 1000
"""How many names of metrics are kept apart; those beyond are rows without a name."""


class Marks(PlainSource):
    """What `probing.script.marks` calls while recording is on."""

    def __init__(
        self,
        recording: Recording,
        progress: Progress,
        boundary: Boundary,
        accelerator: Accelerator,
        rings: tuple[RingWriter, RingWriter],
        *,
        memory: MemoryRows,
    ) -> None:
        """Begin without recording.

        Args:
            rings: Those of python.spans and python.metrics.
        """
        self._recording = recording
        self._progress = progress
        self._boundary = boundary
        self._accelerator = accelerator
        self._spans, self._metrics = rings
        self._memory = memory
        self._late = LateRows()
        self._value_at = self._metrics.places_of("value")[0]
        self._names: dict[str, int] = {}
        self.guard = Guard("marks", self.stop)

    @property
    def is_on(self) -> bool:
        """Whether it records."""
        return marks.recorder is self

    def start(self) -> None:
        """Have marks come here."""
        marks.recorder = self

    def stop(self) -> None:
        """Have marks come here no more."""
        if marks.recorder is self:
            marks.recorder = None

    def close(self) -> None:
        """Stop for good."""
        super().close()
        self._late.end()

    def step_ended(self) -> None:
        """See `marks.step`."""
        self.guard.run(self._end_step)

    def span_began(self, name: str, depth: int) -> int | None:
        """See `marks.span`; returns the word of its row."""
        try:
            recording, now = self._recording, time.perf_counter_ns()
            name_id, thread_id = self._number_of(name), recording.threads.state.native_id
            return self._spans.open_row(now, recording.step, name_id, thread_id, min(depth, 255))
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
            return None

    def span_ended(self, begun: object, *, failed: bool) -> None:
        """See `marks.span`."""
        self.guard.run(self._end_span, begun, failed)

    def measured(self, values: dict[str, object]) -> None:
        """See `marks.metric`."""
        self.guard.run(self._write, values)

    def memory_seen(self, label: str, cleaning: marks.Cleaning) -> None:
        """See `marks.see_memory`."""
        self._memory.seen(label, cleaning)

    def _end_step(self) -> None:
        """A step ends, in the thread that trains from now on."""
        recording = self._recording
        clock = recording.costs.clock
        start = clock()
        thread = recording.threads.state
        if self._boundary.admit_step(thread):
            has_ended = self._progress.step_marked(thread)
            recording.costs.add("marks", clock() - start)
            if has_ended:
                recording.safe_points.step_ended()
            recording.ended_step = None  # what comes behind the script's own mark is the next step

    def _end_span(self, begun: object, failed: bool) -> None:  # noqa: FBT001 - as the guard calls it
        if isinstance(begun, int) and self._spans.still_holds(begun):
            took = time.perf_counter_ns() - self._spans.started_ns(begun)
            self._spans.close_row(begun, FAILED if failed else DONE, took)

    def _write(self, values: dict[str, object]) -> None:
        """One row per figure."""
        recording, now = self._recording, time.perf_counter_ns()
        step, thread_id = recording.told_step, recording.threads.state.native_id
        for name, value in values.items():
            closing, number = self._metrics.no_closing(), self._number(value)
            word = self._metrics.open_row(now, step, self._number_of(name), thread_id)
            self._late.write(self._metrics, word, closing, [(self._value_at, number)])
        self._late.flush()

    def _number(self, value: Any) -> Number:
        """A figure as a number; NULL for what is none, whatever it does when it is asked."""
        try:
            return self._read(value) or Number(NULL_FLOAT)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            pass_on()
            return Number(NULL_FLOAT)

    def _read(self, value: Any) -> Number | None:
        """The same, where it may fail: as of a text of numpy, or of more than a float holds."""
        if type(value) in (int, float, bool):
            return Number(float(value))
        if hasattr(value, "numel"):
            missed = self._accelerator.missed
            number = read_number(value, self._accelerator)
            return number if self._accelerator.missed == missed else Missed()
        is_scalar = getattr(value, "shape", None) == () and hasattr(value, "item")  # of numpy
        is_complex = is_scalar and getattr(getattr(value, "dtype", None), "kind", "") == "c"
        return Number(float(value)) if is_scalar and not is_complex else None

    def _number_of(self, name: str) -> int:
        """The number of a name, as long as there are not too many."""
        number = self._names.get(name)
        if number is None:
            if len(self._names) >= _MOST_NAMES:
                return 0
            number = self._names[name] = self._recording.names.intern(name)
        return number
