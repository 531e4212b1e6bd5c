"""Writes the rows of python.steps, and tells of each micro-batch within one.

Rules of this file: used by the training thread only, a few times per micro-batch. A number that is
still on its way from the device is written into its row later, at the end of another step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .....ring.format import DONE, NULL_FLOAT, NULL_NAME
from .....ring.writer import RingWriter
from ...accelerator import Accelerator
from ...calls.names.class_names import parameters_in
from ...model.model_flops import ModelFlops, autocast_type
from ...numbers.number import Number
from ...torch_types import Module
from ..evaluations import Wait
from .host_times import COLUMNS as HOST_COLUMNS, HostTimes, Reading
from .late_rows import Later, LateRows
from .loss_columns import LossColumns
from .losses import Loss, Skipped
from .optimizer_rows import OptimizerRows, OptimizerStep, new_optimizer_rows
from .step_batches import StepBatches, new_step_batches
from .step_places import StepEnd, StepPlaces
from .step_watch import DeviceTimer, MemoryMoments

_NS = 1e-9


class StepRows:
    """The step in progress and its micro-batches.

    Attributes:
        phases: The clock of the phases, told by the sources.
        called: See `StepBatches`, as of what else is taken from that: at no cost of a call of ours.
        amp_scale: The scale of the last loss that was scaled.
        skipped: Optimizer steps that a gradient scaler has left out in this step.
        norm: The norm of this step's gradients.
        max_norm: What the script has clipped that norm to; None where it has not.
        took_ns: How long the last step took; 0 while none has ended.
        shape: The sizes of the first tensor that the root was given last; None where it had none.
        has_stepped: Whether an optimizer has stepped since a gradient scaler last looked.
        by_hand: Whether no optimizer has ended the last step.
        on_device: Whether an accelerator was in use as the step began.
        autocast: The type that autocast has calls of modules be in; None without.
        used: Called where a device is in use.
        found_inf: Whether gradients overflowed, of an optimizer that leaves out the step itself.
        before_wait: Called with a batch that was waited for; returns whether it is not the step's.
        late: The rows that wait for numbers.
        host: What reads the clocks and counters of the training thread.
        last_read: What it read as the last step ended, where the next one begins at once.
    """

    def __init__(
        self,
        steps: RingWriter,
        batches: RingWriter,
        optimizers: RingWriter,
        accelerator: Accelerator,
        *,
        in_c: bool = True,
    ) -> None:
        """Begin without a step.

        Args:
            in_c: Whether the C part keeps the clocks, where it was built.
        """
        self._accelerator = accelerator
        self.host = HostTimes(in_c=in_c)
        self._read: Reading | None = None
        self.last_read: Reading | None = None
        self._flops = ModelFlops()
        self._mark: Any = None
        self._memory: MemoryMoments | None = None
        self._due_memory: MemoryMoments | None = None  # the same, in steps that get such rows
        self._device_times: DeviceTimer | None = None
        self.used: Callable[[], object] = bool
        self._steps = steps
        self.late = LateRows()
        self._batches = new_step_batches(batches, self.late, steps, in_c=in_c)
        self.phases = self._batches.phases
        self._share(self._batches)
        self._new_optimizers = functools.partial(
            new_optimizer_rows, optimizers, self.late, in_c=in_c
        )
        self._optimizers = self._new_optimizers()
        self._others: dict[int, tuple[list[Loss], int, OptimizerRows]] = {}
        self._at = StepPlaces(*steps.places_of(*StepPlaces.__match_args__))
        self._host_at = steps.piece_of(*HOST_COLUMNS)
        self._losses_at = LossColumns(steps)
        self._word: int | None = None
        self._training = self._step = self._thread_id = self.took_ns = 0
        self.has_stepped = self.by_hand = self.on_device = False
        self.autocast: Any = None
        self.shape: tuple[int, ...] | None = None
        self.before_wait: Callable[[Wait], bool] = lambda _: False
        self._ended: int | None = None
        self._forget()

    def _share(self, batches: StepBatches) -> None:
        """What is asked of the micro-batches alone is asked without a call in between."""
        self.lost, self.lost_in_function = batches.lost, batches.lost_in_function
        self.called, self.call_failed = batches.called, batches.call_failed
        self.pass_begins, self.pass_failed = batches.pass_begins, batches.pass_failed
        self.reached, self.evaluation_begins = batches.reached, batches.evaluation_begins
        self.drop_losses, self.keep_losses = batches.drop_losses, batches.keep_losses
        self.replace_losses = batches.replace_losses

    def watch_memory(self, memory: MemoryMoments) -> None:
        """Have the rows of python.memory written at the same moments."""
        self._memory = memory

    def watch_device(self, times: DeviceTimer, used: Callable[[], None]) -> None:
        """Tell it of the beginnings and ends of steps in which a device is in use.

        Args:
            used: Called at their beginning.
        """
        self._device_times = times
        self.used = used

    def trains(self, root: Module) -> None:
        """This is the root module that is trained."""
        parameter = next(parameters_in(root), None)
        if parameter is not None:
            self._accelerator.meet(parameter.device)

    def _forget(self) -> None:
        """A new step knows nothing of the one before."""
        self._batches.begin(self._step, self._thread_id)
        self._optimizers.forget()
        self.norm: Number | None = None
        self.amp_scale: Number | None = None
        self.found_inf: Number | None = None
        self.max_norm: float | None = None
        self.skipped: int | None = None

    def see_autocast(self) -> None:
        """A module is called inside a root, where autocast is on if it is for that model."""
        self.autocast = autocast_type() or self.autocast

    def open(self, now_ns: int, step: int, thread_id: int) -> None:
        """A step begins."""
        self._step, self._thread_id = step, thread_id
        self._forget()
        self._read, self.last_read = self.last_read or self.host.read(), None
        self._word = self._steps.open_row(now_ns, step, thread_id)
        self._mark = self._mark or self._accelerator.mark()
        self.on_device = self._mark is not None
        memory = self._memory
        self._due_memory = memory if memory is not None and memory.step_began(step) else None
        self.phases.watch = self._batches.memory = self._due_memory
        if self.on_device and self._device_times is not None:
            self.used()
            self._device_times.step_began(step)
        self.phases.begin(now_ns)

    def close(self, now_ns: int, ended: StepEnd) -> None:
        """The step has ended."""
        self.has_stepped, self.took_ns = True, (took_ns := ended.took_ns)
        self.by_hand = ended.optimizer == NULL_NAME
        self.phases.end(now_ns)
        word, late = self._word, self.late
        if word is None:
            return
        at, closing, batches = self._at, self._steps.no_closing(), self._batches
        self.last_read = self.host.fill(closing, self._host_at, self._read)
        loss = batches.fill_end(closing, ended, self._optimizers.count)
        if self.skipped is not None:
            closing[at.skipped] = self.skipped
        if self._mark is not None:
            closing[at.host_bound] = int(self._mark.is_here())
        if (tokens := batches.tokens) is not None:
            closing[at.tokens] = tokens
            if took_ns > 0:
                took_s = took_ns * _NS
                closing[at.tokens_per_s] = tokens / took_s
                closing[at.flops], closing[at.mfu] = self._arithmetic(ended.model, tokens, took_s)
        if later := self._later(closing, loss):
            late.write(self._steps, word, closing, later)
        else:
            self._steps.close_row(word, DONE, *closing)
        self._ended, self._word = word, None
        if late.waiting:
            late.flush()
        memory = self._memory
        if memory is not None and (self._due_memory is not None or memory.is_wanted):
            memory.step_ended(took_ns)
        if self.on_device and self._device_times is not None:
            self._device_times.step_ended(took_ns)

    def _later(self, closing: list[object], loss: float | None) -> list[tuple[int, Later]]:
        """The columns of a step that may still be on their way from a device.

        Args:
            closing: Where those are filled in that are here.
            loss: That of the step, where it is plain and here.
        """
        later: list[tuple[int, Later]] = []
        batches, is_one = self._batches, self._optimizers.have_one_loss
        if loss is not None:  # as mostly on a CPU
            is_own = is_one and not batches.dropped
            self._losses_at.fill_plain(closing, loss, step=self._step, is_one=is_own)
        else:
            is_one = self._losses_at.fill(
                closing, later, batches.losses, batches.dropped, self._step, self._optimizers
            )
        if is_one and self.norm is not None:
            self._losses_at.norms(closing, later, self.norm, self.max_norm)
        if self.amp_scale is not None:
            later.append((self._at.amp_scale, self.amp_scale))
        if self.found_inf is not None:
            later.append((self._at.skipped, Skipped(self.skipped or 0, self.found_inf)))
        if self._mark is not None:
            first, self._mark = self._mark, self._accelerator.mark()
            between = self._mark and self._accelerator.between(first, self._mark)
            if between is not None:
                later.append((self._at.device_s, Number(NULL_FLOAT, between)))
        return later

    def stepped(self, now_ns: int, step: OptimizerStep) -> None:
        """An optimizer has stepped."""
        self.has_stepped = True
        self.phases.end_batch()
        if self._word is not None:
            place = (now_ns, self._step, self._thread_id)
            batches = self._batches
            self._optimizers.write(place, step, batches.losses, self.norm, batches.dropped)

    def restart(self, start_ns: int, thread_id: int) -> None:
        """What the step has done so far was no part of it: it begins now, in this thread."""
        if self._word is None:
            return
        self._thread_id = thread_id
        self._forget()
        self._read = self.host.read()
        self._steps.reopen_row(self._word, start_ns, self._step, self._thread_id)
        self._batches.take_back()
        if self.on_device:
            self._mark = self._accelerator.mark()
        self.phases.begin(start_ns)

    def resume(self, start_ns: int) -> None:
        """The step that was completed last, one of inference, is not over after all."""
        if self._ended is None:
            return
        self._word = self._ended
        self._steps.reopen_row(self._word, start_ns, self._step, self._thread_id)
        self.phases.resume(in_batch=self._batches.resume())

    def _arithmetic(self, model: Module, tokens: int, took_s: float) -> tuple[float, float]:
        """The columns of arithmetic done, for what was trained on tokens."""
        flops = self._flops.of_step(model, tokens, self.autocast)
        if flops is None:
            return NULL_FLOAT, NULL_FLOAT
        peak = self._flops.peak_of(self._accelerator.device_model())
        return flops, NULL_FLOAT if peak is None else flops / took_s / peak

    @property
    def micro_batch(self) -> int | None:
        """The number of the micro-batch in progress; None between two of them."""
        return self._batches.micro_batch

    @property
    def has_passes(self) -> bool:
        """Whether a backward pass of the step in progress has ended."""
        return self._batches.has_passes

    def abandon(self) -> None:
        """Recording stops: the rows in progress stay open."""
        self.phases.is_on = False
        self._batches.abandon()
        self._word = self._mark = self.last_read = None

    def data_waited(self, wait: Wait) -> None:
        """A loader has been waited for."""
        if not self.before_wait(wait):
            self.count_wait(wait)

    def count_wait(self, wait: Wait) -> None:
        """The same, of a batch that is known to be the step's own."""
        self.phases.data_waited(wait.start_ns, wait.took_ns, wait.has_batch)
        if wait.has_batch:
            self._batches.came(wait.samples, wait.tokens)

    def switch(self, training: int) -> None:
        """Another training goes on, in the same step: the losses of each are its own."""
        kept = self._others.pop(training, None)
        losses, dropped, optimizers = kept or ([], 0, self._new_optimizers())
        before = self._batches.exchange(losses, dropped)
        self._others[self._training] = (*before, self._optimizers)
        self._training, self._optimizers = training, optimizers
