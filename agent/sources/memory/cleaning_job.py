"""Cleans up memory at the end of a step, for who has asked for it, between two rows of it.

Rules of this file: runs in the training thread, at a safe point; may take tens of milliseconds.
"""

from __future__ import annotations

import time

from ....ring.format import NULL_INT
from ....safety.guard import Guard
from ....script.marks import Cleaning
from ...on_demand.armed_job import ArmedJob
from ..accelerator import is_capturing, is_in_use
from ..shared.recording import Recording
from .memory_rows import MemoryRows


class CleaningJob(ArmedJob):
    """Cleans up at the end of a step, with a row of python.memory before and after.

    Attributes:
        found: Objects that garbage was made of.
    """

    what = "clean"

    def __init__(
        self, recording: Recording, rows: MemoryRows, cleaning: Cleaning, number: int
    ) -> None:
        super().__init__(number)
        self._recording, self._rows, self._cleaning = recording, rows, cleaning
        self._held_ns = 0
        self.guard = Guard("cleaning", self.end)

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        if not self._held_ns:
            return ()
        notes = [f"the training was held for {self._held_ns * 1e-6:.0f} ms"]
        if self._cleaning.reset_peaks and is_in_use():
            notes.append("what the script itself reads of the device's peaks begins anew, too")
        return tuple(notes)

    def _work(self) -> None:
        """Clean up, between two rows."""
        if is_capturing():  # nothing may be given back meanwhile
            return
        start = time.perf_counter_ns()
        self.saw(self._recording.step - 1)
        words = " ".join(name for name, is_wanted in self._cleaning._asdict().items() if is_wanted)
        self._rows.collected = NULL_INT
        self._rows.seen(f"before {words}")
        self._rows.seen(f"after {words}", self._cleaning)
        self._held_ns = time.perf_counter_ns() - start
        if not self._rows.is_on:
            self.failed("memory is not recorded here")
            return
        self.found = max(self._rows.collected, 0)
        self.done = 1
        self.end()
