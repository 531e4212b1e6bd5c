"""Recording of one process: its rings, its sources, and what they know about the training.

Rules of this file: started in a thread that may import torch's submodules (the main thread),
never imports torch itself. Stopping leaves torch as it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from ..rundir import ProcessFolder
from ..settings import Settings
from ..tables import STEPS, TORCH_TRACE
from .recorder import Names, RingWriter
from .safe_points import SafePoints
from .sources.memory import Accelerator, Cuda, MemorySampler
from .sources.modules import ModuleCalls
from .sources.optimizers import OptimizerSteps
from .sources.progress import Progress
from .sources.recording import Recording

_STILL_NS = 1_000_000_000


class TorchTraining:
    """The recorded sources and the rings they write to.

    Attributes:
        safe_points: Where code that was sent can hold the training thread.
    """

    def __init__(
        self, folder: ProcessFolder, settings: Settings, *, accelerator: Accelerator | None = None
    ) -> None:
        """Make the rings.

        Raises:
            RingError: There is no space for them.
        """
        self.safe_points = SafePoints()
        trace = RingWriter(folder.ring(TORCH_TRACE.name), TORCH_TRACE, settings.trace_rows)
        self._recording = Recording(
            trace=trace,
            steps=RingWriter(folder.ring(STEPS.name), STEPS, settings.step_rows),
            names=Names(folder.names),
            safe_points=self.safe_points,
        )
        self._memory = MemorySampler(accelerator or Cuda())
        self._progress = Progress(self._recording, self._memory)
        self._sources = (
            ModuleCalls(self._recording, self._progress, self._memory),
            OptimizerSteps(self._recording, self._progress, self._memory),
        )
        for source in self._sources:
            source.guard.on_fault = trace.count_dropped

    def start(self) -> None:
        """Begin to record."""
        for source in self._sources:
            source.start()

    def pause(self) -> None:
        """Stop recording; `start` goes on."""
        for source in self._sources:
            source.stop()
        self._progress.abandon()

    def close(self) -> None:
        """Stop recording for good; what was recorded stays."""
        self.pause()
        self._memory.close()
        self._recording.trace.close()
        self._recording.steps.close()
        self._recording.names.close()

    def problems(self) -> list[str]:
        """What went wrong in the sources, one sentence each."""
        return [s.guard.problem for s in self._sources if s.guard.problem]

    def is_moving(self) -> bool:
        """Whether a module call has ended in the last second."""
        return time.perf_counter_ns() - self._memory.taken_ns < _STILL_NS

    def thread_id(self) -> int:
        """The training thread's number in the kernel; 0 while there is none."""
        return self._recording.training_thread

    def step(self) -> int | None:
        """The step in progress; None while no model has been called."""
        return self._progress.step if self._recording.training_thread else None

    def names(self) -> Mapping[str, Any]:
        """The model and the optimizer seen in recorded calls."""
        found = {"model": self._recording.model, "optimizer": self._recording.optimizer}
        objects = {name: ref() for name, ref in found.items() if ref is not None}
        return {name: value for name, value in objects.items() if value is not None}


class NoTraining:
    """Stands in while torch has not been imported: nothing to wait for, nothing to hold."""

    def __init__(self) -> None:
        self.safe_points = SafePoints()

    def start(self) -> None:
        """Nothing to record."""

    def pause(self) -> None:
        """Nothing to pause."""

    def close(self) -> None:
        """Nothing to close."""

    def problems(self) -> list[str]:
        """No problems."""
        return []

    def is_moving(self) -> bool:
        """Nothing moves."""
        return False

    def thread_id(self) -> int:
        """There is no training thread."""
        return 0

    def step(self) -> int | None:
        """No step is counted."""
        return None

    def names(self) -> Mapping[str, Any]:
        """Nothing has been seen."""
        return {}


def torch_is_ready() -> bool:
    """Whether torch has been imported, far enough to be watched."""
    torch = sys.modules.get("torch")
    return all(hasattr(torch, part) for part in ("nn", "optim", "compiler"))
