"""Recording of one process: its rings, its sources, and what they know about the training.

Rules of this file: never imports torch, nor any part of it; may be started and stopped in any
thread, while others train. Stopping leaves torch as it was.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ring.room import share_room
from ...ring.writer import Names, RingWriter
from ...rundir.folders import ProcessFolder
from ...safety.guard import try_each
from ...settings import Settings
from ...tables import (
    BATCHES,
    CHECKPOINTS,
    EVALUATIONS,
    GRADIENTS,
    MEMORY,
    METRICS,
    MICRO_BATCHES,
    NUMERICS,
    OOM_CATEGORIES,
    OOM_GROWTH,
    OOMS,
    OPTIMIZER_STEPS,
    OVERHEAD,
    SAMPLES,
    SPANS,
    STEPS,
    TORCH_TRACE,
)
from ..sources.accelerator import Accelerator, Cuda, CudaHistory, PinnedMemory
from ..sources.calls.at_work import TorchAtWork
from ..sources.calls.backward import BackwardPasses
from ..sources.calls.budget import Budget
from ..sources.calls.device_times import DeviceTimes
from ..sources.calls.graphs import GraphReplays
from ..sources.calls.module_backward import ModuleBackward
from ..sources.calls.module_names import ModuleNames
from ..sources.calls.modules import ModuleCalls
from ..sources.collectives.call_memory import CallMemory
from ..sources.collectives.first_group import Collectives
from ..sources.data.dataloaders import DataLoaders
from ..sources.memory.device_watch import DeviceWatch
from ..sources.memory.memory_rows import MemoryRows
from ..sources.memory.sampler import MemorySampler
from ..sources.numbers.gradient_norms import GradientNorms
from ..sources.out_of_memory.ooms import Ooms
from ..sources.out_of_memory.rows import OomRings
from ..sources.saves.checkpoints import Checkpoints
from ..sources.steps.boundary import Boundary
from ..sources.steps.evaluations import Evaluations
from ..sources.steps.found import found_optimizers
from ..sources.steps.gradient_scaler import GradientScaler
from ..sources.steps.marks import Marks
from ..sources.steps.members import Members
from ..sources.steps.optimizers import OptimizerSteps
from ..sources.steps.progress import Progress
from ..sources.steps.recording import Recording
from ..sources.steps.step_rows import StepRows
from .safe_points import SafePoints
from .source import Source, SourceReport
from .training_thread import training_thread

if TYPE_CHECKING:
    from ..sources.configuration import Configuration
    from ..sources.leaks.referrers import ReferrerSearch
    from ..sources.leaks.watch import LeakWatch
    from ..sources.numbers.gradient_rows import GradientRows
    from ..sources.stacks.stack_samples import StackSamples

_STILL_NS = 1_000_000_000
_NAMED = 20
"""How many modules a sentence names."""
_NUMERICS_ROWS = 1024
_EVALUATION_ROWS = 1024
_CHECKPOINT_ROWS = 512
_OOM_ROWS, _OOM_CATEGORY_ROWS, _OOM_GROWTH_ROWS = 128, 1024, 2048


class TorchTraining:
    """The recorded sources and the rings they write to.

    Attributes:
        safe_points: Where code that was sent can hold the training thread.
        dataloaders: The data loaders that were met.
        numerics_ring: The ring of python.numerics, which is written on demand.
        on_demand: Reports of what records on demand and writes no ring.
        leaks: The last watch for storages that stay; None before the first.
        referrers: The last search for who refers to storages; None before the first.
        on_first_step: Called when the first step has ended, in the training thread.
    """

    def __init__(
        self,
        folder: ProcessFolder,
        settings: Settings,
        *,
        accelerator: Accelerator | None = None,
        interned: Names | None = None,
    ) -> None:
        """Make the rings.

        Args:
            interned: The names of the process; None for new ones.

        Raises:
            RingError: There is no space for them.
        """
        self.safe_points = SafePoints()
        self.leaks: LeakWatch | None = None
        self.referrers: ReferrerSearch | None = None
        self.on_first_step: Callable[[], None] = lambda: None
        self._rings = _made_rings(folder, settings)
        trace, steps, batches, waits, overhead, spans, metrics = self._rings[:7]
        self._gradient_ring, self.numerics_ring, memory_ring, self._sample_ring = self._rings[7:11]
        accelerator = self._accelerator = accelerator or Cuda()
        self.on_demand: dict[str, Callable[[], SourceReport | None]] = {}
        self._recording = Recording(
            trace=trace,
            rows=StepRows(steps, batches, self._rings[14], accelerator),
            names=interned or Names(folder.names),
            safe_points=self.safe_points,
        )
        before = steps.newest_of("step")
        if before is not None:  # an agent that this process had before has counted so far
            self._recording.step = before + 1
        share = settings.overhead / 100
        self._memory = MemorySampler(accelerator, self._recording.now)
        self._memory_rows = MemoryRows(
            self._recording, memory_ring, accelerator, self._memory, share
        )
        self._recording.rows.watch_memory(self._memory_rows)
        self._gradient_rows: GradientRows | None = None
        self._stack_samples: StackSamples | None = None
        members = Members(self._recording)
        evaluations = Evaluations(self._rings[15], members.is_trained)
        self._progress = Progress(self._recording, self._memory, evaluations, members)
        self._recording.rows.before_wait = self._progress.data_waited
        self.safe_points.at_work = TorchAtWork()
        self._boundary = Boundary(self._recording, self._memory)
        shared = (self._recording, self._progress, self._memory, self._boundary)
        names = self._module_names = ModuleNames(self._recording.names, self._recording.models)
        modules = self._backward_hooks = ModuleBackward(self._recording, self._memory, names)
        self._budget = Budget(self._recording, names, modules, overhead, share)
        self._progress.on_step = self._first_step_ended
        loaders = DataLoaders(self._recording, waits)
        self.dataloaders: DataLoaders | None = loaders
        scaler = GradientScaler(self._recording, accelerator)
        self._ooms = Ooms(
            self._recording, names, modules, accelerator, OomRings(*self._rings[11:14])
        )
        self._collectives = Collectives(
            self._recording,
            folder,
            settings.collective_rows,
            accelerator,
            CallMemory(self._memory, lambda: self._memory_rows.is_wanted),
        )
        calls = self._calls = ModuleCalls(*shared, names, modules, in_c=settings.native)
        self._device_times = DeviceTimes(self._recording, folder, accelerator, share)
        graphs = GraphReplays(*shared)
        passes = BackwardPasses(*shared, modules, scaler, accelerator)
        timed = (calls, modules, graphs, passes, self._collectives)
        self._device_times.timed_by = tuple(part.time_by for part in timed)
        self._devices = DeviceWatch(self._recording, folder, accelerator, self._memory)
        self._recording.rows.watch_device(self._device_times, self._devices.used)
        self._sources: tuple[Source, ...] = (
            graphs,
            calls,
            passes,
            scaler,
            GradientNorms(self._recording, accelerator, share),
            OptimizerSteps(*shared),
            loaders,
            self._memory_rows,
            Marks(
                *shared[:2],
                self._boundary,
                accelerator,
                (spans, metrics),
                memory=self._memory_rows,
            ),
            self._ooms,
            self._collectives,
            self._device_times,
            self._devices,
            Checkpoints(self._recording, self._rings[16], accelerator),
        )
        for source in self._sources:
            source.guard.on_fault = source.guard.on_fault or trace.count_dropped
        if settings.gradients_every:
            self.sample_gradients(settings.gradients_every)
        if settings.sampling_hz:
            self.sample_stacks(settings.sampling_hz)

    def _first_step_ended(self, first: int, last: int, took_ns: int) -> None:
        """The first step has ended; of the others only the budget hears."""
        self._progress.on_step = self._budget.step_ended
        self._budget.step_ended(first, last, took_ns)
        self.on_first_step()

    def begin(self) -> None:
        """Nothing is waited for: it is here."""

    def start(self, *, late: bool = False) -> None:
        """Begin to record.

        Args:
            late: Whether the training may be in the middle of a step; recording then begins with
                the next one.
        """
        if late:
            self._memory.taken_ns = time.perf_counter_ns()  # it moves until it is seen not to
            self._recording.training_thread = self._recording.training_thread or training_thread()
        if self._boundary.has_optimizer():
            for optimizer in found_optimizers():
                self._recording.made.add(optimizer)
        self._progress.begin(late=late)
        self._recording.rows.host.start()
        self._boundary.begin(late=late)
        for source in self._sources:
            source.guard.run(source.start)

    @property
    def accelerator(self) -> Accelerator:
        """The seam of the device."""
        return self._accelerator

    @property
    def memory_rows(self) -> MemoryRows:
        """What writes python.memory."""
        return self._memory_rows

    def gradient_rows(self) -> GradientRows:
        """What writes python.gradients, made when it is first asked for."""
        if self._gradient_rows is None:
            from ..sources.numbers.gradient_rows import GradientRows

            rows = GradientRows(
                self._recording, self._gradient_ring, self._accelerator, self._progress.hand
            )
            rows.guard.on_fault = self._gradient_ring.count_dropped
            self._gradient_rows = rows
            self._sources += (rows,)
            if self.is_recording():
                rows.start()
        return self._gradient_rows

    def sample_gradients(self, every: int) -> None:
        """Write python.gradients of one step in so many; 0 for none."""
        self.gradient_rows().every = every

    def sample_stacks(self, hz: float) -> None:
        """Write python.samples so many times per second; 0 for never."""
        if self._stack_samples is None:
            from ..sources.stacks.stack_samples import StackSamples

            self._stack_samples = StackSamples(self._recording, self._sample_ring)
            self._sources += (self._stack_samples,)
            if self.is_recording():
                self._stack_samples.start()
        self._stack_samples.set_rate(hz)

    def pause(self) -> None:
        """Stop recording; `start` goes on."""
        self._boundary.end()
        self._recording.rows.host.stop()
        for source in self._sources:
            source.guard.run(source.stop)
        self._progress.abandon()
        self._budget.forget()

    def close(self) -> None:
        """Stop recording for good; what was recorded stays.

        Raises:
            OSError: Something of it could not be done; the rest was.
        """
        births, surveyor = self._recording.births, self._recording.surveyor
        failed = try_each(
            (
                self.pause,
                *(source.close for source in self._sources),
                self._memory.close,
                *([births.close] if births is not None else []),
                *([surveyor.close] if surveyor is not None else []),
                *(ring.close for ring in self._rings),
                self._recording.names.close,
            )
        )
        if failed:
            raise OSError("; ".join(failed))

    def ended_by(self, error: BaseException) -> None:
        """An exception ends the process or a thread of it; never raises."""
        if self._ooms.is_on:
            self._ooms.ended_by(error)

    def remains(self) -> list[str]:
        """What could not be taken away, one sentence each."""
        parts: tuple[Any, ...] = (*self._sources, self._accelerator)
        return [sentence for part in parts for sentence in part.remains()]

    def problems(self) -> list[str]:
        """What went wrong in the sources, one sentence each."""
        told = [self._recording.names.problem, *(ring.problem for ring in self._rings)]
        told += [source.guard.problem for source in self._sources]
        told += [self._backward_hooks.guard.problem, self._module_names.guard.problem]
        told.append(self._recording.rows.host.guard.problem)
        return [problem for problem in told if problem]

    def source_reports(self) -> list[SourceReport]:
        """How each source stands."""
        budget = self._budget
        costs: dict[str, tuple[float | None, str | None]] = {}
        is_known = bool(budget.row_ns)  # measured at the end of the first step
        modules = "1 module" if budget.hooked == 1 else f"{budget.hooked} modules"
        hooked = f"every pass as a whole; those of {modules} at every step"
        told = [self._calls.way(), _left_out(budget.thinned)]
        note = "; ".join(text for text in told if text is not None)
        costs["modules"] = (budget.calls_ns * 1e-9 if is_known else None, note)
        costs["memory"] = (self._memory_rows.last_ns * 1e-9 or None, self._memory_rows.note())
        if self._backward_hooks.in_c is not None:
            hooked = "every pass as a whole, and those of all modules"
        elif not is_known:
            hooked = "every pass as a whole; those of modules after the first step"
        costs["backward"] = (
            budget.hooks_ns * 1e-9 if is_known else None,
            self._backward_hooks.guard.problem or hooked,
        )
        costs["optimizers"] = (None, self._progress.told())
        costs["device times"] = (None, self._device_times.note())
        costs["devices"] = (None, self._devices.note())
        costs["collectives"] = (None, self._collectives.note())
        reports = [self._report(source, costs) for source in self._sources]
        more = [report() for report in self.on_demand.values()]
        return reports + [report for report in more if report is not None]

    def _report(
        self, source: Source, costs: dict[str, tuple[float | None, str | None]]
    ) -> SourceReport:
        """How one source stands."""
        guard = source.guard
        cost, note = costs.get(guard.source, (None, None))
        return SourceReport(
            source=guard.source,
            state="failed" if guard.has_failed else self._state_of(source),
            cost_s=cost,
            faults=guard.faults,
            note=guard.problem or note,
        )

    def _state_of(self, source: Source) -> str:
        """Whether a source that has not failed records, and if not, why."""
        if source.is_on:
            return "on"
        return "absent" if any(other.is_on for other in self._sources) else "off"

    def is_moving(self) -> bool:
        """Whether a module call has ended in the last second."""
        return time.perf_counter_ns() - self._memory.taken_ns < _STILL_NS

    def thread_id(self) -> int:
        """The training thread's number in the kernel; 0 while there is none."""
        return self._recording.training_thread

    def step(self) -> int | None:
        """The step in progress; None while no model has been called."""
        is_counted = self._recording.training_thread and not self._recording.awaits_step
        return self._recording.step if is_counted else None

    def watched(self) -> Recording | None:
        """What live tables of models and optimizers are made from; None without torch."""
        return self._recording

    @functools.cached_property
    def _configuration(self) -> Configuration:
        from ..sources.configuration import Configuration  # not needed before the first step

        return Configuration()

    def configuration(self) -> dict[str, str]:
        """What models, optimizers and loaders are set up with, by name."""
        return self._configuration.seen(self._recording, self.dataloaders)

    def segments(self) -> list[dict[str, Any]] | None:
        """What the accelerator's allocator has reserved; None when none is in use."""
        return self._accelerator.segments()

    def pinned_memory(self) -> PinnedMemory | None:
        """What torch has pinned of the host's memory; None when no accelerator is in use."""
        return self._accelerator.pinned_memory()

    def check_devices(self) -> Sequence[tuple[str, bool | None, float | None, str | None]]:
        """Have the devices in use compute something; none when none is."""
        return self._accelerator.check_devices()

    def allocator_history(self) -> dict[str, Any] | None:
        """What the accelerator's allocator remembers; None where it keeps no history."""
        keeper = CudaHistory()
        return keeper.history() if keeper.is_in_use() and keeper.has_history() else None

    @property
    def recording(self) -> Recording:
        """What the sources share."""
        return self._recording

    def is_recording(self) -> bool:
        """Whether the sources are in place, so that the ends of steps are seen."""
        return self._boundary.is_on

    def clock_offset_ns(self) -> int:
        """What python.torch_trace adds to the monotonic clock for the time since the epoch."""
        return self._recording.trace.clock_offset_ns

    def names(self) -> Mapping[str, Any]:
        """What is known of the training by name, such as ``model``; each is found when asked."""
        from ..sources.model.known_names import KnownNames

        return KnownNames(self._recording, self.dataloaders, self.step)


def _made_rings(folder: ProcessFolder, settings: Settings) -> list[RingWriter]:
    """The rings that are there from the start.

    Raises:
        RingError: There is no space for them.
    """
    tables = (
        (TORCH_TRACE, settings.trace_rows),
        (STEPS, settings.step_rows),
        (MICRO_BATCHES, settings.step_rows),
        (BATCHES, settings.batch_rows),
        (OVERHEAD, settings.step_rows),
        (SPANS, settings.mark_rows),
        (METRICS, settings.mark_rows),
        (GRADIENTS, settings.gradient_rows),
        (NUMERICS, _NUMERICS_ROWS),
        (MEMORY, settings.memory_rows),
        (SAMPLES, settings.sample_rows),
        (OOMS, _OOM_ROWS),
        (OOM_CATEGORIES, _OOM_CATEGORY_ROWS),
        (OOM_GROWTH, _OOM_GROWTH_ROWS),
        (OPTIMIZER_STEPS, settings.step_rows),
        (EVALUATIONS, _EVALUATION_ROWS),
        (CHECKPOINTS, _CHECKPOINT_ROWS),
    )
    share_room(tables)
    return [RingWriter(folder.ring(t.name), t, rows) for t, rows in tables]


def _left_out(names: tuple[str, ...]) -> str | None:
    """A sentence about modules that are left out of the record."""
    if not names:
        return None
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"left out of most steps, to keep within the budget: {shown}{more}"
