"""Records every optimizer step, and tells `Progress` when a training step has ended.

Rules of this file: runs in the training threads, inside torch's own global optimizer hooks.
A hook always returns None, because any other value would change the user's arguments. The hooks
come and go at any moment, but never while torch walks over its list of hooks in another thread: a
list that changes under it would raise an exception in the middle of the user's step. An optimizer
that another one steps, or the step of a base class that its class calls, makes no step of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from ....ring.format import DONE, FAILED, NULL_INT
from ....safety.guard import Guard
from ....safety.other_stacks import current_stacks
from ....tables import STAGES
from ..calls import dynamo
from ..module_hook import ModuleHook
from ..out_of_memory.step_errors import STAND_INS, StepErrors
from ..shared.recording import Recording
from ..shared.thread_state import MAX_DEPTH, ThreadState
from ..stand_in import StandIn
from ..torch_types import Optimizer
from .boundary import Boundary
from .phases import OPTIMIZER as OPTIMIZER_PHASE
from .progress import Progress

OPTIMIZER = STAGES.index("optimizer")
_PATIENCE_S = 2.0
_POLL_S = 0.001


_Step = tuple[int, int, int, bool]
"""A step of an optimizer under way: the number of the name of the optimizer's class, its open row,
when it began, and whether another optimizer steps it, as a part of its own step."""


class OptimizerSteps:
    """Hooks into every optimizer, and takes the hooks off again."""

    def __init__(self, recording: Recording, progress: Progress, boundary: Boundary) -> None:
        self._recording = recording
        self._progress = progress
        self._boundary = boundary
        self._open: dict[int, _Step] = {}  # by id(optimizer)
        self._class_names: dict[type, int] = {}
        self._in_base: set[int] = set()  # those whose class calls the step of its base
        self._handles: list[Any] = []
        self.is_on = False
        self._errors = StepErrors(self._failed)
        self._hooks = _HookLists()
        optimizer = sys.modules["torch.optim.optimizer"].Optimizer
        self._maker = StandIn(optimizer, "__init__", self._made)
        self.guard = Guard("optimizers", self.stop)

    def start(self) -> None:
        """Register the hooks, once."""
        self.is_on = True
        self._maker.start()
        if not self._handles:
            self.guard.run(self._register)

    def stop(self) -> None:
        """Take the hooks off, or where that must wait, have them do nothing meanwhile."""
        self.is_on = False
        self._maker.stop()
        self._errors.stop()
        self._open.clear()
        self._in_base.clear()
        self._class_names.clear()
        if self._handles and not self._hooks.are_in_use():
            self._remove()

    def close(self) -> None:
        """Stop for good; waits a little for the moment at which the hooks can go."""
        self.stop()
        if self._handles and self._hooks.wait_unused():
            self._remove()

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        remains = self._maker.remains()
        if self.is_on or not self._handles:
            return remains
        return [
            *remains,
            "two hooks of torch.optim, because a step is inside its hooks; they do nothing.",
        ]

    def _register(self) -> None:
        """Put the hooks in place, at a moment at which that harms no step."""
        if not self._hooks.wait_unused():
            raise RuntimeError("an optimizer is inside its hooks and does not get out of them")
        dynamo.leave_out_with_calls([_StepHook.__call__.__code__])
        optimizer = sys.modules["torch.optim.optimizer"]
        self._handles = [
            optimizer.register_optimizer_step_pre_hook(_StepHook(self, self._step_begins)),
            optimizer.register_optimizer_step_post_hook(_StepHook(self, self._step_ends)),
        ]

    def _remove(self) -> None:
        """Take the hooks off."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _made(
        self,
        original: Callable[..., object],
        optimizer: Optimizer,
        /,
        *args: object,
        **kwargs: object,
    ) -> None:
        original(optimizer, *args, **kwargs)
        self.guard.run(self._recording.objects.made.add, optimizer)

    def _step_begins(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step."""
        recording = self._recording
        if recording.safe_points.closed:
            recording.safe_points.torch_called()
        if not self.is_on or recording.awaits_step:
            return
        thread = recording.threads.state
        is_part = thread.optimizing == recording.session and self._hooks.is_part()
        if is_part and id(optimizer) in self._open:
            self._in_base.add(id(optimizer))
            return
        clock = recording.costs.clock
        start = clock()
        for look in recording.events.before_step:
            look(optimizer, args, kwargs)
        self._open_row(optimizer, thread, is_part=is_part)
        if took_ns := clock() - start:
            recording.costs.add("optimizers", took_ns)

    def _failed(self, optimizer: Optimizer) -> None:
        """A step has ended by an exception, which goes on to the caller."""
        self._recording.threads.state.optimizing = 0
        if self._recording.ooms is not None:
            self._recording.ooms.raised(OPTIMIZER_PHASE)
        self.guard.run(self._close_failed, optimizer)

    def _close_failed(self, optimizer: Optimizer) -> None:
        """What comes behind it is no part of it, should the script go on."""
        self._in_base.discard(id(optimizer))
        opened = self._open.pop(id(optimizer), None)
        if opened is not None:
            recording, now = self._recording, time.perf_counter_ns()
            recording.trace.close_row(opened[1], FAILED, now - opened[2], NULL_INT)
            if recording.threads.state.native_id == recording.training_thread:
                recording.rows.phases.leave(now)

    def _open_row(self, optimizer: Optimizer, thread: ThreadState, *, is_part: bool) -> None:
        recording, key, number = self._recording, id(optimizer), thread.native_id
        name = self._class_names.get(type(optimizer)) or self._meet(optimizer)
        if self._in_base:
            self._in_base.discard(key)
        left = self._open.pop(key, None)
        if left is not None:  # its last step raised, and torch called no hook
            recording.trace.close_row(left[1], FAILED, NULL_INT, NULL_INT)
        start, depth = time.perf_counter_ns(), thread.depth
        word = recording.trace.open_row(
            start, recording.now.step, name, name, name, number, OPTIMIZER,
            min(depth, MAX_DEPTH), 0, 1,
        )  # fmt: skip
        self._open[key] = (name, word, start, is_part)
        thread.optimizing = recording.session
        if number not in recording.trainers.threads:
            recording.note_trainer(number)
        if number == recording.training_thread:
            recording.rows.phases.enter(OPTIMIZER_PHASE, start)

    def _meet(self, optimizer: Optimizer) -> int:
        """See the errors of its class's steps from now on.

        Returns:
            The number of the class's name, which is looked up once; 0 (NULL) is none.
        """
        self._errors.watch(optimizer)
        number = self._recording.names.intern(type(optimizer).__name__)
        if number:
            self._class_names[type(optimizer)] = number
        return number

    def _step_ends(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer has stepped."""
        recording, key = self._recording, id(optimizer)
        thread, clock = recording.threads.state, recording.costs.clock
        entered = clock()
        if key in self._in_base:
            self._in_base.discard(key)
            return
        for look in recording.events.after_step:
            look(optimizer, args, kwargs)
        is_counted = thread.native_id == recording.training_thread
        if is_counted:
            recording.objects.optimizers.add(optimizer)
        opened = self._open.pop(key, None)
        if opened is None:
            is_part = self._hooks.is_part()
            name = self._class_names.get(type(optimizer)) or self._meet(optimizer)
        else:
            (name, word, start, is_part), now = opened, time.perf_counter_ns()
            recording.trace.close_row(word, DONE, now - start, recording.now.bytes)
            if is_counted:
                recording.rows.phases.leave(now)
        has_ended = False
        if not is_part:
            thread.optimizing = 0
            has_ended = self._boundary.admit_step(thread) and self._progress.optimizer_stepped(
                optimizer, name, thread
            )
        if not is_counted:  # it is known by now whether it is of another training
            recording.objects.optimizers.add(optimizer)
        if took_ns := clock() - entered:
            recording.costs.add("optimizers", took_ns)
        if has_ended and recording.safe_points.waiting:
            recording.safe_points.step_ended()


class _StepHook(ModuleHook):
    """One of our two hooks.

    A class of the script that some library sends to another process takes torch's lists of hooks
    along, since its step refers to them: what is ours in them stays behind.
    """

    def __init__(self, steps: OptimizerSteps, call: Callable[..., None]) -> None:
        super().__init__(call)
        self._steps = steps

    @dynamo.never_inlined
    def __call__(self, *args: object) -> None:
        """As torch calls it."""
        if self._steps.is_on:
            try:
                self._call(*args)
            except Exception:  # noqa: BLE001 - never harm the host
                self._steps.guard.fault()


class _HookLists:
    """The two lists of global hooks that torch walks over at every step of an optimizer."""

    def __init__(self) -> None:
        optimizer = sys.modules["torch.optim.optimizer"]
        self._class: Any = optimizer.Optimizer
        self._lists = [
            getattr(optimizer, f"_global_optimizer_{when}_hooks", {}) for when in ("pre", "post")
        ]
        wrap = getattr(self._class, "profile_hook_step", None)
        # Every call gives a function of the same code: that which calls the hooks around a step.
        self._walker = wrap(lambda _: None).__code__ if wrap is not None else None

    def wait_unused(self) -> bool:
        """Wait until nobody walks over the lists; False when that takes too long."""
        end = time.monotonic() + _PATIENCE_S
        while self.are_in_use():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def is_part(self) -> bool:
        """Whether the calling thread is in the step of an optimizer within that of another."""
        steps = 0
        outer: FrameType | None = sys._getframe(1)
        while outer is not None and steps < 2:
            steps += outer.f_code is self._walker
            outer = outer.f_back
        return steps > 1

    def are_in_use(self) -> bool:
        """Whether a thread is in the middle of a list, so that a change of it would be noticed.

        A list of one hook that is being called is at its end already.
        """
        if self._walker is None or max(map(len, self._lists)) < 2:
            return False
        steps = self._steps()
        return any(self._is_walked_in(stack, steps) for stack in current_stacks().values())

    def _is_walked_in(self, stack: list[FrameType], steps: set[object]) -> bool:
        """Whether a stack is in the middle of a list of hooks."""
        inner: FrameType | None = None
        for outer in stack:
            if outer.f_code is self._walker and (inner is None or inner.f_code not in steps):
                return True
            inner = outer
        return False

    def _steps(self) -> set[Any]:
        """The code of what the hooks are called around: the step methods themselves."""
        classes, found = [self._class], set[Any](STAND_INS)
        for cls in classes:
            classes.extend(cls.__subclasses__())
            step = getattr(cls.step, "__wrapped__", None)
            found.add(getattr(step, "__code__", None))
        return found
