"""Records every backward pass as a whole, with the loss that it began with.

Rules of this file: runs in the thread that calls `backward()`, in the place of the one function by
which torch starts its autograd engine: `Tensor.backward`, `torch.autograd.backward` and
`torch.autograd.grad` all end there. Changes no tensor and keeps none.
"""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .....ring.format import DONE, FAILED, NULL_FLOAT
from .....tables import STAGES
from ...accelerator import Accelerator
from ...numbers.number import Missed, Number, read_number, share_of
from ...numbers.transformed import is_last_pass, read_transformed
from ...shared.looks import MemoryLook
from ...shared.recording import Recording
from ...shared.thread_state import ThreadState
from ...stand_in import StandIn, StandInSource
from ...steps.boundary import Boundary
from ...steps.gradient_scaler import GradientScaler
from ...steps.phases import BACKWARD
from ...steps.progress import Progress
from ...steps.rows.losses import CommonShare, Total
from ..device_times import BACKWARD as DEVICE_BACKWARD, DeviceTimes
from ..names.module_names import IDS
from .module_backward import ModuleBackward

BACKWARD_STAGE = STAGES.index("backward")
_LAST = 3
_GRAPH = slice(2, _LAST + 1)
"""Which arguments of the engine say that another pass may go through the same graph, and that
results can be differentiated again."""
_MOST_LOSSES = 64
"""Of how many tensors that one pass begins with the losses are read."""


class _Pass:
    """A backward pass, as far as it has come.

    Attributes:
        around: How many passes of its thread it lies in.
        floor: How many modules' passes were under way around it.
        start_ns: When it was let in; 0 where it is not recorded.
        word: Its open row; None for one within another one, or without any module.
        is_first: Whether no other pass of its thread is around it.
        is_counted: Whether it is told of as part of the training thread's step.
        has_phase: Whether the phase of the step is its.
        ids: The numbers of the roots that it goes through, packed.
        creates_graph: Whether its results are to be differentiated again.
        trains: Whether gradients of parameters come of it, as far as is known.
    """

    # Most of it as it begins stands in the class: every step makes one.
    start_ns = 0
    ids = b""
    word: int | None = None
    is_first = is_counted = has_phase = creates_graph = trains = False

    def __init__(self, thread: ThreadState) -> None:
        self.thread = thread
        self.around, self.floor = thread.passes, thread.floor


class BackwardPasses(StandInSource):
    """Stands in for torch's way into its autograd engine."""

    def __init__(  # noqa: PLR0917 - all of them are needed at every pass
        self,
        recording: Recording,
        progress: Progress,
        boundary: Boundary,
        modules: ModuleBackward,
        scaler: GradientScaler,
        accelerator: Accelerator,
    ) -> None:
        self._recording = recording
        self._progress = progress
        self._boundary = boundary
        self._modules = modules
        self._scaler = scaler
        self._accelerator = accelerator
        self._timer: DeviceTimes | None = None
        self._numbers = itertools.count(1)  # each is set once, and so cannot come back
        engine = StandIn(
            sys.modules["torch.autograd"],
            "_engine_run_backward",
            self._around,
            [self._begin, self._end],
        )
        super().__init__("backward", [engine], recording.events)

    def start(self) -> None:
        """Stand in."""
        self._modules.start()
        super().start()
        self._recording.sees_passes = self.is_on

    def stop(self) -> None:
        """Stand in no more."""
        self._recording.sees_passes = False
        super().stop()
        self._modules.stop()

    def time_by(self, timer: DeviceTimes | None) -> None:
        """Have whole passes timed on the device from now on, or no more."""
        self._timer = timer

    def _around(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """A backward pass from its first to its last node."""
        begun = None
        try:
            try:
                begun = _Pass(self._recording.threads.state)
                try:
                    self._begin(begun, args, kwargs)
                finally:  # what the beginning looks at, no pass changes yet
                    self._enter(begun)
            except Exception:  # noqa: BLE001 - never harm the host
                self.guard.fault()
            result = original(*args, **kwargs)
            try:
                self._end(begun, DONE, args, result)
            except Exception:  # noqa: BLE001 - the same
                self.guard.fault()
        except BaseException:  # of the pass, or an interrupt in the midst of ours
            self.guard.run(self._end, begun, FAILED, args, None)
            raise
        return result

    def _enter(self, begun: _Pass) -> None:
        """From now on gradients may change at any moment."""
        recording, thread_id = self._recording, begun.thread.native_id
        if thread_id not in recording.trainers.threads:
            recording.note_trainer(thread_id)
        begun.is_first = thread_id not in recording.passing
        recording.passing.add(thread_id)
        recording.now.passes = next(self._numbers)  # behind the other: see `NewNodes.hand_over`
        self._modules.nodes.look(begun.thread)

    def _begin(self, begun: _Pass, args: tuple[Any, ...], kwargs: dict[str, object]) -> None:
        """A pass is about to begin."""
        recording, thread = self._recording, begun.thread
        if recording.safe_points.closed:  # also one that is not recorded waits
            recording.safe_points.torch_called()
        is_in = thread.session == recording.session and not recording.awaits_step
        if thread.is_agents or not (is_in or self._boundary.admit_pass(thread)):
            return
        is_outermost, progress = not thread.passes, self._progress
        counts = is_outermost and progress.counted.passes(thread)
        has_optimizer = self._boundary.optimizer_exists or self._boundary.has_optimizer()
        may_end = counts and (progress.hand.is_on or not has_optimizer)
        if may_end and progress.ends_before_pass(args[0], thread, has_optimizer=has_optimizer):
            recording.safe_points.step_ended()
        clock = recording.costs.clock
        entered, begun.start_ns = clock(), time.perf_counter_ns()
        if counts:
            self._begin_counted(begun, args, kwargs, has_optimizer=has_optimizer)
        elif thread.native_id == recording.training_thread and recording.carried.is_called:
            # a hook may carry on what earlier passes have made
            recording.carried.carries_on(args[0], args[1])
        begun.start_ns = time.perf_counter_ns()
        if counts:
            recording.rows.phases.enter(BACKWARD, begun.start_ns)
            begun.has_phase = True
        if is_outermost and thread.root_ids:
            roots = self._modules.roots
            usual = roots.pass_begins() if counts and roots.are_several else None
            begun.ids = usual or thread.root_ids
            begun.word = recording.trace.open_row(*self._opening(begun))
            if self._timer is not None:
                self._timer.entered(begun.word, begun.ids, DEVICE_BACKWARD, 0)
        if took_ns := clock() - entered:
            recording.costs.add("backward", took_ns)
        thread.floor = self._modules.count(thread)
        thread.passes += 1

    def _opening(self, begun: _Pass) -> tuple[int, ...]:
        """The opening columns of a pass's row."""
        ids, thread_id = IDS.unpack(begun.ids), begun.thread.native_id
        return (
            begun.start_ns, self._recording.now.step, *ids, thread_id, BACKWARD_STAGE, 0, 0, 1,
        )  # fmt: skip

    def _begin_counted(
        self,
        begun: _Pass,
        args: tuple[Any, ...],
        kwargs: dict[str, object],
        *,
        has_optimizer: bool,
    ) -> None:
        """A pass of the training thread's step is about to begin."""
        recording = self._recording
        keeps_graph, creates_graph = args[_GRAPH] if len(args) > _LAST else (False, False)
        # `torch.func.grad` always has a graph made, also where nobody differentiates once more.
        is_inside = creates_graph and is_last_pass()
        is_functional = is_inside and not has_optimizer
        begun.creates_graph = creates_graph = creates_graph and not is_functional
        begun.is_counted, recording.ended_step = True, None
        self._progress.pass_begins(
            begun.thread, has_optimizer=has_optimizer, creates_graph=creates_graph
        )
        is_by_hand = self._progress.hand.is_on and not creates_graph
        begun.trains = is_functional or bool(kwargs.get("accumulate_grad")) or is_by_hand
        recording.rows.pass_begins(begun.start_ns, begun.trains, keeps_graph)
        if recording.looks.memory is not None:
            self._look_at_memory(recording.looks.memory, args)
        if is_inside:
            self._note_transformed(args, is_functional=is_functional)
        elif begun.trains:
            self._note_begin(args)

    def _note_transformed(self, args: tuple[Any, ...], *, is_functional: bool) -> None:
        """A pass inside of `torch.func.grad` begins.

        Args:
            is_functional: Whether the training has no optimizer of torch; else the script may set
                the results as gradients, or they are those of an inner step.
        """
        recording = self._recording
        loss = read_transformed(args[0][0], self._accelerator)
        if is_functional:
            recording.objects.loss = None if loss is None else (None, loss)
            recording.rows.lost(loss, None)
        else:
            recording.rows.lost_in_function(loss)

    def _note_begin(self, args: tuple[object, ...]) -> None:
        """A pass begins that makes gradients to train with."""
        recording = self._recording
        self._note_loss(args)
        for look in recording.events.before_backward:
            look(args)
        if recording.looks.numerics is not None:
            recording.looks.numerics.loss_came(args)

    def _look_at_memory(self, look: MemoryLook, args: tuple[object, ...]) -> None:
        """Have what looks at the memory see what the pass begins with, unless torch is at work."""
        points = self._recording.safe_points
        if not points.at_work.is_here():
            with points.others_held_up() as are_resting:
                if are_resting:
                    look.backward_began(args)

    def _note_loss(self, args: tuple[Any, ...]) -> None:
        """Remember what `backward()` was called on."""
        tensors = args[0]
        recording = self._recording
        if recording.carried.is_called:
            if recording.carried.carries_on(tensors, args[1]):
                return
            if recording.carried.is_sum_of_all(tensors):
                recording.rows.replace_losses()
        if len(tensors) != 1:
            self._note_losses(tensors)
            return
        read = self._read(loss := tensors[0])
        if read is not None:
            number, share, is_own = read
            is_known = number.here is not NULL_FLOAT
            own = (weakref.ref(loss) if is_own else None, number) if is_known else None
            recording.objects.loss = own
            recording.rows.lost(number, share)

    def _note_losses(self, tensors: Sequence[Any]) -> None:
        """The same of several tensors: the sum of those that are numbers, where the first is one.

        Others are results whose gradients the script gives.
        """
        if not 0 < len(tensors) <= _MOST_LOSSES:  # it may begin with nothing
            return
        numbers, shares = [], []
        for loss in tensors:
            read = self._read(loss)
            if read is not None:
                numbers.append(read[0])
                shares.append(read[1])
            elif not numbers:
                return
        unknown = [number for number in numbers if number.here is NULL_FLOAT]
        total, parts = Total(*numbers), [share for share in shares if share is not None]
        self._recording.objects.loss = None if unknown else (None, total)
        share = CommonShare(parts) if len(parts) == len(shares) else None
        self._recording.rows.lost(unknown[0] if unknown else total, share)

    def _read(self, loss: Any) -> tuple[Number, Number | None, bool] | None:
        """A loss without its scale: NULL where that is not known, None where it is no number.

        Returns:
            It, what part of its step's it is, and whether it is the script's own, not scaled.
        """
        accelerator, scaler = self._accelerator, self._scaler
        missed = accelerator.missed
        number, is_own = read_number(loss, accelerator), True
        if number is None and accelerator.missed == missed:
            return None
        node = loss.grad_fn
        share = share_of(node, accelerator, scaler.scaled)
        if number is not None and scaler.scaled.scales:
            number, is_own = scaler.unscaled(number, node)
        if accelerator.missed != missed:
            number = Missed()
        return number or Number(NULL_FLOAT), share, is_own

    def _end(  # noqa: C901 - each call within it would be paid for in every step
        self, begun: _Pass | None, state: int, args: tuple[Any, ...], result: object
    ) -> None:
        """A pass has ended; what an interrupt has left of that is done when it is called again."""
        if begun is None:
            return
        thread, recording = begun.thread, self._recording
        if begun.is_first:
            recording.passing.discard(thread.native_id)
        if not begun.start_ns:
            return
        entered = (clock := recording.costs.clock)()  # another one once a step has ended in here
        if state == FAILED and recording.ooms is not None:
            recording.ooms.raised(BACKWARD)
        if thread.passes > begun.around:
            self._modules.close_down_to(thread, thread.floor, not begun.around)
            thread.passes, thread.floor = begun.around, begun.floor
        now = time.perf_counter_ns()
        if begun.has_phase:
            begun.has_phase = False
            self._end_phase(begun, now, args, result)
            if state == FAILED and begun.trains:
                recording.rows.pass_failed()
        word, begun.word = begun.word, None
        if word is not None:
            if self._timer is not None:
                self._timer.left(word)
            roots = self._modules.roots
            ids = roots.pass_ended() if begun.is_counted and roots.are_several else None
            if ids is not None and ids != begun.ids:
                begun.ids = ids
                recording.trace.reopen_row(word, *self._opening(begun))
            recording.trace.close_row(word, state, now - begun.start_ns, recording.now.bytes)
        is_counted, begun.is_counted = begun.is_counted, False
        has_ended = is_counted and self._progress.pass_ended(
            thread, args[0], trains=begun.trains, creates_graph=begun.creates_graph
        )
        if took_ns := clock() - entered:
            recording.costs.add("backward", took_ns)
        if has_ended:
            recording.safe_points.step_ended()

    def _end_phase(
        self, begun: _Pass, now_ns: int, args: tuple[object, ...], result: object
    ) -> None:
        """A pass of the training thread's step has ended."""
        recording = self._recording
        if recording.collectives is not None:
            recording.collectives.pass_ended(begun.start_ns, now_ns)
        recording.rows.phases.leave(now_ns, trains=begun.trains)
        if recording.carried.is_called:
            recording.carried.pass_ended()
        for look in recording.events.after_backward:
            look(args, result)
        if recording.looks.numerics is not None:
            recording.looks.numerics.backward_ended()
