"""Recording of one process: its rings, its sources, and what they know about the training.

Rules of this file: never imports torch, nor any part of it; may be started and stopped in any
thread, while others train. Stopping leaves torch as it was.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ring.writer import Names
from ...rundir.folders import ProcessFolder
from ...safety.guard import try_each
from ...settings import Settings
from ..sources.accelerator import Accelerator, CudaHistory, PinnedMemory
from ..sources.calls.at_work import TorchAtWork
from ..sources.data.dataloaders import DataLoaders
from ..sources.memory.memory_rows import MemoryRows
from ..sources.shared.found import found_optimizers
from ..sources.shared.recording import Recording
from ..sources.steps.rows.step_rows import StepRows
from .rings import make_rings
from .safe_points import SafePoints
from .source import SourceReport
from .source_reports import report_sources
from .sources import Sources
from .training_thread import training_thread

if TYPE_CHECKING:
    from ..sources.configuration import Configuration
    from ..sources.leaks.references.referrers import ReferrerSearch
    from ..sources.leaks.watch import LeakWatch
    from ..sources.numbers.gradient_rows import GradientRows

_STILL_NS = 1_000_000_000


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
        rings = self._rings = make_rings(folder, settings)
        self.numerics_ring = rings.numerics
        accelerator = self._accelerator = accelerator or Accelerator()
        self.on_demand: dict[str, Callable[[], SourceReport | None]] = {}
        self._recording = Recording(
            trace=rings.torch_trace,
            rows=StepRows(
                rings.steps,
                rings.micro_batches,
                rings.optimizer_steps,
                accelerator,
                in_c=settings.native,
            ),
            names=interned or Names(folder.names),
            safe_points=self.safe_points,
        )
        before = rings.steps.newest_of("step")
        if before is not None:  # an agent that this process had before has counted so far
            self._recording.step = before + 1
        self.safe_points.at_work = TorchAtWork()
        sources = self._sources = Sources(self._recording, rings, folder, settings, accelerator)
        self.dataloaders: DataLoaders | None = sources.dataloaders
        sources.calls.hear_of_steps(self._first_step_ended)
        if settings.gradients_every:
            self.sample_gradients(settings.gradients_every)
        if settings.sampling_hz:
            self.sample_stacks(settings.sampling_hz)

    def _first_step_ended(self) -> None:
        """The first step has ended: tell whoever wants to hear of it by now."""
        self.on_first_step()

    def begin(self) -> None:
        """Nothing is waited for: it is here."""

    def start(self, *, late: bool = False) -> None:
        """Begin to record.

        Args:
            late: Whether the training may be in the middle of a step; recording then begins with
                the next one.
        """
        sources = self._sources
        if late:
            sources.memory.taken_ns = time.perf_counter_ns()  # it moves until it is seen not to
            self._recording.training_thread = self._recording.training_thread or training_thread()
        if sources.boundary.has_optimizer():
            for optimizer in found_optimizers():
                self._recording.objects.made.add(optimizer)
        self._recording.trainers.begin(late=late)
        sources.progress.begin(late=late)
        self._recording.rows.host.start()
        sources.boundary.begin(late=late)
        for source in sources.all:
            source.guard.run(source.start)

    @property
    def accelerator(self) -> Accelerator:
        """The seam of the device."""
        return self._accelerator

    @property
    def memory_rows(self) -> MemoryRows:
        """What writes python.memory."""
        return self._sources.memory_rows

    def gradient_rows(self) -> GradientRows:
        """What writes python.gradients."""
        return self._sources.gradient_rows()

    def sample_gradients(self, every: int) -> None:
        """Write python.gradients of one step in so many; 0 for none."""
        self._sources.gradient_rows().every = every

    def sample_stacks(self, hz: float) -> None:
        """Write python.samples so many times per second; 0 for never."""
        self._sources.stack_samples().set_rate(hz)

    def pause(self) -> None:
        """Stop recording; `start` goes on."""
        self._sources.boundary.end()
        self._recording.rows.host.stop()
        for source in self._sources.all:
            source.guard.run(source.stop)
        self._sources.progress.abandon()
        self._sources.calls.budget.forget()

    def close(self) -> None:
        """Stop recording for good; what was recorded stays.

        Raises:
            OSError: Something of it could not be done; the rest was.
        """
        failed = try_each(
            (
                self._leave_collectives,
                self.pause,
                self._recording.rows.late.end,
                *(source.close for source in self._sources.all),
                self._sources.memory.close,
                *(kept.close for kept in self._recording.looks.kept()),
                *(ring.close for ring in self._rings.all()),
                self._recording.names.close,
            )
        )
        if failed:
            raise OSError("; ".join(failed))

    def _leave_collectives(self) -> None:
        """While our functions in torch still keep passes and steps from beginning."""
        if self._sources.collectives.has_kernels:
            with self.safe_points.others_held_up() as are_resting:
                self._sources.collectives.take_off(are_resting=are_resting)

    def ended_by(self, error: BaseException) -> None:
        """An exception ends the process or a thread of it; never raises."""
        if self._sources.ooms.is_on:
            self._sources.ooms.ended_by(error)

    def remains(self) -> list[str]:
        """What could not be taken away, one sentence each."""
        parts: tuple[Any, ...] = (*self._sources.all, self._accelerator)
        return [sentence for part in parts for sentence in part.remains()]

    def problems(self) -> list[str]:
        """What went wrong in the sources, one sentence each."""
        told = [self._recording.names.problem, *(ring.problem for ring in self._rings.all())]
        told += [source.guard.problem for source in self._sources.all]
        told += [self._sources.calls.hooks.guard.problem, self._sources.calls.names.guard.problem]
        told.append(self._recording.rows.host.guard.problem)
        return [problem for problem in told if problem]

    def source_reports(self) -> list[SourceReport]:
        """How each source stands."""
        reports = report_sources(self._sources)
        more = [report() for report in self.on_demand.values()]
        return reports + [report for report in more if report is not None]

    def is_moving(self) -> bool:
        """Whether a module call has ended in the last second, or a hold for what was sent."""
        moved_ns = max(self._sources.memory.taken_ns, self.safe_points.held_ns())
        return time.perf_counter_ns() - moved_ns < _STILL_NS

    def thread_id(self) -> int:
        """The training thread's number in the kernel; 0 while there is none."""
        return self._recording.training_thread

    def step(self) -> int | None:
        """The step in progress; None while no model has been called."""
        is_counted = self._recording.training_thread and not self._recording.awaits_step
        return self._recording.step if is_counted else None

    def told_step(self) -> int | None:
        """The step that what the script tells now belongs to; None while no model was called."""
        return None if self.step() is None else self._recording.told_step

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

    def use_device(self) -> None:
        """Have this thread use the training's device: each thread has one of its own."""
        self._accelerator.use_device()

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
        return self._sources.boundary.is_on

    def clock_offset_ns(self) -> int:
        """What python.torch_trace adds to the monotonic clock for the time since the epoch."""
        return self._recording.trace.clock_offset_ns

    def names(self) -> Mapping[str, Any]:
        """What is known of the training by name, such as ``model``; each is found when asked."""
        from ..sources.model.known_names import KnownNames

        return KnownNames(self._recording, self.dataloaders, self.step)
