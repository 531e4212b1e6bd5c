"""Records every backward pass as a whole, with the loss that it began with.

Rules of this file: runs in the thread that calls `backward()`, in the place of the one function by
which torch starts its autograd engine: `Tensor.backward`, `torch.autograd.backward` and
`torch.autograd.grad` all end there. Changes no tensor and keeps none.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ....ring.format import DONE, FAILED
from ....safety.guard import Guard
from ....tables import STAGES
from ..accelerator import Accelerator
from ..memory.sampler import MemorySampler
from ..numbers.number import read_number, share_of
from ..numbers.transformed import is_last_pass, read_transformed
from ..stand_in import StandIn
from ..steps.boundary import Boundary
from ..steps.gradient_scaler import GradientScaler
from ..steps.phases import BACKWARD
from ..steps.progress import Progress
from ..steps.recording import Recording, ThreadState
from .device_times import BACKWARD as DEVICE_BACKWARD, DeviceTimes
from .module_backward import ModuleBackward
from .module_names import IDS

BACKWARD_STAGE = STAGES.index("backward")
_CREATES_GRAPH = 3
"""Which argument of the engine says so."""


class _Pass(NamedTuple):
    """A backward pass under way.

    Attributes:
        floor: How many modules' passes were under way around it.
        word: Its open row; None for one within another one, or without any module.
        counts: Whether it is part of the training thread's step.
        creates_graph: Whether its results are to be differentiated again.
    """

    thread: ThreadState
    floor: int
    start_ns: int
    word: int | None
    counts: bool
    creates_graph: bool


class BackwardPasses:
    """Stands in for torch's way into its autograd engine."""

    def __init__(  # noqa: PLR0917 - all of them are needed at every pass
        self,
        recording: Recording,
        progress: Progress,
        memory: MemorySampler,
        boundary: Boundary,
        modules: ModuleBackward,
        scaler: GradientScaler,
        accelerator: Accelerator,
    ) -> None:
        self._recording = recording
        self._progress = progress
        self._memory = memory
        self._boundary = boundary
        self._modules = modules
        self._scaler = scaler
        self._accelerator = accelerator
        self._timer: DeviceTimes | None = None
        self._engine = StandIn(
            sys.modules["torch.autograd"], "_engine_run_backward", self._around, [self._begin]
        )
        self.guard = Guard("backward", self.stop)

    @property
    def is_on(self) -> bool:
        """Whether it records."""
        return self._engine.is_on

    def start(self) -> None:
        """Stand in."""
        self._modules.start()
        self._engine.start()

    def stop(self) -> None:
        """Stand in no more."""
        self._engine.stop()
        self._modules.stop()

    def close(self) -> None:
        """Stop for good."""
        self.stop()

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        return self._engine.remains()

    def time_by(self, timer: DeviceTimes | None) -> None:
        """Have whole passes timed on the device from now on, or no more."""
        self._timer = timer

    def _around(self, original: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """A backward pass from its first to its last node."""
        try:
            begun = self._begin(args, kwargs)
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
            begun = None
        if begun is None:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            if self._recording.ooms is not None:
                self._recording.ooms.raised(BACKWARD)
            self.guard.run(self._end, begun, FAILED, args, None)
            raise
        self.guard.run(self._end, begun, DONE, args, result)
        return result

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, object]) -> _Pass | None:
        """A pass is about to begin; None for one that is not recorded."""
        recording = self._recording
        thread = recording.threads.state
        if not self._is_admitted(thread):
            return None
        if recording.safe_points.closed:
            recording.safe_points.torch_called()
        entered = time.perf_counter_ns()
        is_outermost = not thread.passes
        trains = recording.training_thread = recording.training_thread or thread.native_id
        counts = is_outermost and thread.native_id == trains
        creates_graph = bool(args[_CREATES_GRAPH]) if len(args) > _CREATES_GRAPH else False
        has_optimizer = self._boundary.has_optimizer()
        # `torch.func.grad` always has a graph made, also where nobody differentiates once more.
        is_functional = creates_graph and not has_optimizer and is_last_pass()
        creates_graph = creates_graph and not is_functional
        if counts:
            self._progress.pass_begins(
                thread, has_optimizer=has_optimizer, creates_graph=creates_graph
            )
            recording.rows.phases.ensure_batch(entered)
            if recording.memory_look is not None:
                self._look_at_memory(args)
        if counts and is_functional:
            loss = read_transformed(args[0][0], self._accelerator)
            recording.loss = None if loss is None else (None, loss)
            recording.rows.lost(loss, None)
        elif counts and (
            kwargs.get("accumulate_grad") or (self._progress.hand.is_on and not creates_graph)
        ):
            self._note_begin(args)
        start, word = time.perf_counter_ns(), None
        if counts:
            recording.rows.phases.enter(BACKWARD, start)
        if is_outermost and thread.root_ids:
            ids = IDS.unpack(thread.root_ids)
            word = recording.trace.open_row(
                start, recording.step, *ids, thread.native_id, BACKWARD_STAGE, 0, 0, 1
            )
            if self._timer is not None:
                self._timer.entered(word, thread.root_ids, DEVICE_BACKWARD, 0)
        begun = _Pass(thread, thread.floor, start, word, counts, creates_graph)
        thread.passes += 1
        thread.floor = len(thread.backward)
        recording.spent_ns += time.perf_counter_ns() - entered
        return begun

    def _is_admitted(self, thread: ThreadState) -> bool:
        """Whether a pass of a thread is recorded."""
        recording = self._recording
        if thread.is_agents or recording.awaits_step:
            return False
        return thread.session == recording.session or self._boundary.admit_pass(thread)

    def _note_begin(self, args: tuple[object, ...]) -> None:
        """A pass begins that makes gradients to train with."""
        recording = self._recording
        self._note_loss(args)
        for look in recording.before_backward:
            look(args)
        if recording.numerics is not None:
            recording.numerics.loss_came(args)

    def _look_at_memory(self, args: tuple[object, ...]) -> None:
        """Have what looks at the memory see what the pass begins with, unless torch is at work."""
        points, look = self._recording.safe_points, self._recording.memory_look
        if not points.at_work.is_here():
            with points.others_held_up() as are_resting:
                if are_resting:
                    look.backward_began(args)

    def _note_loss(self, args: tuple[Any, ...]) -> None:
        """Remember what `backward()` was called on; of several tensors, the first."""
        tensors = args[0] if args else ()
        if not tensors:
            return
        loss = tensors[0]
        number = read_number(loss, self._accelerator)
        if number is not None:
            number, node = self._scaler.unscaled(loss, number)
            is_scaled = node is not loss.grad_fn
            self._recording.loss = (None if is_scaled else weakref.ref(loss), number)
            self._recording.rows.lost(number, share_of(node, self._accelerator))

    def _end(self, begun: _Pass, state: int, args: tuple[object, ...], result: object) -> None:
        """A pass has ended."""
        thread, recording = begun.thread, self._recording
        entered = time.perf_counter_ns()
        self._modules.close_down_to(thread, thread.floor, is_outermost=thread.passes == 1)
        thread.passes -= 1
        thread.floor = begun.floor
        now = time.perf_counter_ns()
        if begun.counts:
            if recording.collectives is not None:
                recording.collectives.pass_ended(begun.start_ns, now)
            recording.rows.phases.leave(now)
            for look in recording.after_backward:
                look(args, result)
            if recording.numerics is not None:
                recording.numerics.backward_ended()
        if begun.word is not None:
            if self._timer is not None:
                self._timer.left(begun.word)
            took = now - begun.start_ns
            recording.trace.close_row(begun.word, state, took, self._memory.bytes)
        has_ended = begun.counts and self._progress.pass_ended(
            thread, creates_graph=begun.creates_graph
        )
        recording.spent_ns += time.perf_counter_ns() - entered
        if has_ended:
            recording.safe_points.step_ended()
