"""The recorded sources of a training: what each is made with, and in which order they begin.

Rules of this file: names every recorded source but those that are found by the name of their table.
Never imports torch; the rows that are written only while somebody asks for them are imported when
they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...rundir.folders import ProcessFolder
from ...settings import Settings
from ..sources.accelerator import Accelerator
from ..sources.calls.device_times import DeviceTimes
from ..sources.collectives.call_memory import CallMemory
from ..sources.collectives.first_group import Collectives
from ..sources.data.dataloaders import DataLoaders
from ..sources.memory.device_watch import DeviceWatch
from ..sources.memory.memory_rows import MemoryRows
from ..sources.memory.sampler import MemorySampler
from ..sources.numbers.gradient_norms import GradientNorms
from ..sources.out_of_memory.ooms import Ooms
from ..sources.out_of_memory.rows import OomRings
from ..sources.shared.recording import Recording
from ..sources.steps.boundary import Boundary
from ..sources.steps.ends.members import Members
from ..sources.steps.evaluations import Evaluations
from ..sources.steps.marks import Marks
from ..sources.steps.optimizers import OptimizerSteps
from ..sources.steps.progress import Progress
from .call_sources import CallSources
from .rings import Rings
from .source import Source

if TYPE_CHECKING:
    from ..sources.numbers.gradient_rows import GradientRows
    from ..sources.stacks.stack_samples import StackSamples


class Sources:
    """Every recorded source, and the parts that several of them share.

    Attributes:
        all: Each source, in the order in which they start and stop.
        memory: Takes the memory in use, at calls and between them.
        memory_rows: Writes python.memory.
        progress: Counts the steps.
        boundary: Sees where calls come from outside of any other.
        calls: Those of module calls and backward passes.
        dataloaders: The data loaders that were met.
        ooms: Writes python.ooms.
        collectives: Writes python.collectives.
        device_times: Writes python.device_times.
        devices: Writes python.devices.
    """

    def __init__(
        self,
        recording: Recording,
        rings: Rings,
        folder: ProcessFolder,
        settings: Settings,
        accelerator: Accelerator,
    ) -> None:
        """Make them; none records before it is started."""
        self._recording, self._rings, self._accelerator = recording, rings, accelerator
        share = self._share = settings.overhead / 100
        self._gradient_rows: GradientRows | None = None
        self._stack_samples: StackSamples | None = None
        memory = self.memory = MemorySampler(accelerator, recording.now)
        self.memory_rows = MemoryRows(recording, rings.memory, accelerator, memory, share)
        recording.rows.watch_memory(self.memory_rows)
        self.progress = _progress(recording, memory, rings)
        self.boundary = Boundary(recording, memory)
        self._shared = (recording, self.progress, memory, self.boundary)
        self.calls = CallSources(
            self._shared, rings, accelerator, share=share, in_c=settings.native
        )
        self.dataloaders = DataLoaders(recording, rings.batches)
        self.ooms = Ooms(
            recording,
            self.calls.names,
            self.calls.hooks,
            accelerator,
            OomRings(rings.ooms, rings.oom_categories, rings.oom_growth),
        )
        call_memory = CallMemory(memory, lambda: self.memory_rows.is_wanted)
        self.collectives = Collectives(
            recording, folder, settings.collective_rows, accelerator, call_memory
        )
        self.device_times = DeviceTimes(recording, folder, accelerator, share)
        self.devices = DeviceWatch(recording, folder, accelerator, memory)
        self._connect_device_times()
        self.all: tuple[Source, ...] = (*self._in_order(), *self._trackers(settings.metrics_from))
        for source in self.all:
            source.guard.on_fault = source.guard.on_fault or rings.torch_trace.count_dropped

    def _connect_device_times(self) -> None:
        """Have every part whose calls run on a device hand its times over."""
        calls = self.calls
        timed = (calls.calls, calls.hooks, calls.graphs, calls.passes, self.collectives)
        self.device_times.timed_by = tuple([part.time_by for part in timed])
        self._recording.rows.watch_device(self.device_times, self.devices.used)

    def _in_order(self) -> tuple[Source, ...]:
        """Each source: those that see a call first come first."""
        recording, rings, accelerator = self._recording, self._rings, self._accelerator
        return (
            self.calls.graphs,
            self.calls.calls,
            self.calls.passes,
            self.calls.scaler,
            GradientNorms(recording, accelerator, self._share),
            OptimizerSteps(recording, self.progress, self.boundary),
            self.dataloaders,
            self.memory_rows,
            Marks(
                recording,
                self.progress,
                self.boundary,
                accelerator,
                (rings.spans, rings.metrics),
                memory=self.memory_rows,
            ),
            self.ooms,
            self.collectives,
            self.device_times,
            self.devices,
            *self._found_by_name(),
        )

    def _found_by_name(self) -> Iterator[Source]:
        """The sources of tables that say how many rows they hold: `source` of `sources/NAME.py`."""
        for name, ring in self._rings.by_name.items():
            module = importlib.import_module(f"...sources.{name}", __name__)
            source: Source = module.source(self._recording, ring, self._accelerator)
            yield source

    def _trackers(self, wanted: str) -> Iterator[Source]:
        """What records what is logged to trackers, where that is asked for."""
        if wanted:
            from ..sources.steps.trackers import Trackers

            yield Trackers(self._recording, wanted)

    def gradient_rows(self) -> GradientRows:
        """What writes python.gradients, made when it is first asked for."""
        if self._gradient_rows is None:
            from ..sources.numbers.gradient_rows import GradientRows

            ring = self._rings.gradients
            rows = GradientRows(self._recording, ring, self._accelerator, self.progress.hand)
            rows.guard.on_fault = ring.count_dropped
            self._gradient_rows = rows
            self._add(rows)
        return self._gradient_rows

    def stack_samples(self) -> StackSamples:
        """What writes python.samples, made when it is first asked for."""
        if self._stack_samples is None:
            from ..sources.stacks.stack_samples import StackSamples

            self._stack_samples = StackSamples(self._recording, self._rings.samples)
            self._add(self._stack_samples)
        return self._stack_samples

    def _add(self, source: Source) -> None:
        """Take in a source that came late; it records if the others do."""
        self.all += (source,)
        if self.boundary.is_on:
            source.start()


def _progress(recording: Recording, memory: MemorySampler, rings: Rings) -> Progress:
    """What counts the steps."""
    members = Members(recording)
    evaluations = Evaluations(rings.evaluations, recording.carried, members.is_trained)
    progress = Progress(recording, memory, evaluations, members)
    recording.rows.before_wait = progress.data_waited
    return progress
