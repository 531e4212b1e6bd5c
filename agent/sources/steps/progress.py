"""The training step: when one ends, and the rows of whole steps.

Rules of this file: runs in the training threads, a few times per step. What ends a step is decided
here, as docs/explanation/training-step.md says. No step ends in the middle of a backward pass: what
steps in one has stepped when it is over. Where no optimizer is, and nothing is trained, a call of
the first root module that has parameters is a step of inference.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..memory.sampler import MemorySampler
from ..shared.recording import Recording, RootCall
from ..shared.thread_state import ThreadState
from ..torch_types import Module, Optimizer
from .ends.counted_thread import CountedThread
from .ends.hand_steps import HandSteps
from .ends.held_end import HeldEnd
from .ends.main_model import MainModel
from .ends.members import Members
from .ends.optimizer_notes import OptimizerNotes
from .ends.pass_looks import PassLooks
from .ends.step_count import StepCount
from .ends.step_pattern import NO_PLACE
from .ends.trainings import Trainings
from .evaluations import Evaluations, Wait
from .left_out import LeftOut
from .phases import OPTIMIZER
from .rows.open_step import Ended, Ids, OpenStep
from .rows.optimizer_rows import Stepped
from .step_words import StepWords


class Progress:
    """Counts the steps and keeps the rows of the step in progress.

    Attributes:
        is_inference: Whether the step in progress is one of inference, as far as is known.
        on_step: Called when a training step has ended and the next one begun, with the words of
            both steps' rows in torch_trace and the time it took.
        hand: The steps of a training without an optimizer of torch.
        counted: Which thread's steps are counted.
        is_trained: Tells whether an optimizer there is steps parameters of a module.
        left_out: What is told of optimizers' steps that a gradient scaler leaves out.
    """

    def __init__(
        self,
        recording: Recording,
        memory: MemorySampler,
        evaluations: Evaluations,
        members: Members,
    ) -> None:
        self._recording = recording
        self._rows = OpenStep(recording, memory)
        self._members, self._evaluations = members, evaluations
        self.is_trained = members.is_trained
        self._task_id = getattr(sys.modules["torch"]._C, "_current_graph_task_id", lambda: -1)
        self._trainings = Trainings()
        self._held = HeldEnd(members, self._trainings)
        self.counted = CountedThread(recording, members, self._restart)
        self.hand = HandSteps()
        self._looks = PassLooks(recording, members)
        self._main = MainModel(recording)
        self._notes = OptimizerNotes(recording, members, self._main)
        self.left_out = LeftOut(members, self._trainings, self._held, self._notes, self._end_step)
        self.is_inference = self._has_trained = False  # the step in progress
        self._is_marked = self._is_mark_pending = self._has_ended_in_wait = False
        self._passes, self._pending, self._count = 0, list[Stepped](), StepCount()
        self.on_step: Callable[[int, int, int], None] = lambda *_: None

    def root_called(self, call: RootCall, thread: ThreadState) -> bool:
        """A root is called, outside of passes; returns whether as evaluation, no part of a step."""
        if self._recording.trainers.threads:
            return self._root_called(call, thread)
        with self.counted.deciding:  # two threads may begin to train at once
            return self._root_called(call, thread)

    def _root_called(self, call: RootCall, thread: ThreadState) -> bool:  # noqa: C901 - one piece
        root, recording, main = call.root, self._recording, self._main
        if thread.native_id != recording.training_thread and self.counted.is_apart(
            thread, call, is_main=root is main.now(),
            has_trained=self._has_trained and not self.is_inference,
        ):  # fmt: skip
            return False
        if self._pending:
            self._settle(thread)
        if call.has_grad:
            self._come(trains=call.has_parameters)
        if call.has_parameters:
            if call.has_grad:
                self._evaluations.trained(root, call.called)
            elif self._is_evaluation(call):
                self._evaluate(call, thread)
                return True
            self._members.root_called(root, call.ids)
        is_main, may_train = root is main.now() or main.take(call) is root, call.may_train
        if not is_main and (self._rows.is_open or not (may_train and call.has_parameters)):
            return False
        recording.training_thread = thread.native_id
        self.counted.signs += may_train
        if self._rows.is_open and not (self.is_inference and self.counted.inferring is not thread):
            if self._rows.trace_word is None:
                self._rows.open_trace(call.ids, thread.native_id)
        elif call.has_grad or not call.has_optimizer or recording.safe_points.stepping:
            self.is_inference = not (may_train or recording.safe_points.stepping or self.hand.is_on)
            self.counted.infers(thread if self.is_inference else None)
            self._open(call.ids, thread)
            self._has_trained = call.has_grad
            if thread.optimizing == recording.session:  # the optimizer calls the model
                recording.rows.phases.enter(OPTIMIZER, self._rows.started_ns)
        return False

    def root_left(self, root: Module, thread: ThreadState) -> None:
        """A root module's call has ended while `is_inference`: the end of such a step."""
        if self.counted.inferring is thread and self._main.now() is root:
            self._count.inferred += not self._recording.safe_points.stepping
            self._rows.infer(self._recording.training_thread, self._main.named([root]))
            self.counted.inferring = None

    def evaluated(self) -> None:
        """A call that is evaluation has ended."""
        self._evaluations.call_ended(time.perf_counter_ns())

    def data_waited(self, wait: Wait) -> bool:
        """A batch has been waited for; returns whether it is that of an evaluation so far."""
        thread, held = self._recording.threads.state, self._held.ended()
        ended = held or (Ended(now_ns=wait.start_ns) if self.hand.has_ended() else None)
        if ended is not None:
            self._end_step(ended, thread)
            self._has_ended_in_wait = True
        if self._has_trained and not self._evaluations.is_on:
            return False
        self._evaluations.data_waited(wait)
        return self._evaluations.is_on

    def ends_before(self, call: RootCall, thread: ThreadState) -> bool:
        """Whether a step has ended before a call of a root, which that or a batch has shown."""
        if thread.native_id != self._recording.training_thread:
            return False
        if self._held.step is None and not (self.hand.has_passed or self._has_ended_in_wait):
            return False
        held = None if self._held.step is None else self._held.ended(call)
        if held is None and self.hand.has_passed and self.hand.has_ended():
            held = Ended(now_ns=time.perf_counter_ns())
        if held is not None:
            self._end_step(held, thread)
        has_ended, self._has_ended_in_wait = self._has_ended_in_wait, False
        return held is not None or has_ended

    def ends_before_pass(
        self, losses: Sequence[Any], thread: ThreadState, *, has_optimizer: bool
    ) -> bool:
        """Whether a step without optimizer has ended, which only the next pass shows.

        Args:
            losses: What that begins with.
        """
        has_modules = self._main.is_met
        if not self.hand.is_on and (has_optimizer or has_modules):
            return False
        has_ended = self.hand.has_ended_before_pass() if has_modules else self.hand.has_ended()
        if has_ended:
            self._end_step(Ended(now_ns=time.perf_counter_ns()), thread)
        if not has_modules:
            self.hand.meet_leaves(losses)
        return has_ended

    def pass_begins(self, thread: ThreadState, *, has_optimizer: bool, creates_graph: bool) -> None:
        """A backward pass of the training thread is about to begin, outside of any other."""
        self._passes += 1
        self.counted.signs += 1
        # What comes of a pass as of `torch.func.grad` is not seen, so it ends no step.
        is_functional = creates_graph and not has_optimizer and not self.hand.is_on
        if self._held.step:
            self._settle_held(thread)
        self._come(trains=not is_functional)
        if is_functional:
            return
        self._members.is_fresh = True
        if thread.optimizing != self._recording.session:  # else the optimizer has it made
            self._looks.pass_begins(is_new=not self._trainings.now.pattern.is_settled)
            self.hand.pass_begins(self._main.now(), has_optimizer=has_optimizer)
        if self._rows.is_open:
            return
        if self.hand.is_on and self._rows.resume():  # its call was no inference
            self._count.inferred = max(0, self._count.inferred - 1)
        else:
            self._open(self._main.ids, thread)
        self.is_inference, self._has_trained = False, True

    def pass_ended(
        self, thread: ThreadState, losses: Sequence[Any], *, trains: bool, creates_graph: bool
    ) -> bool:
        """It has ended; returns whether that ended a training step."""
        self._passes = max(0, self._passes - 1)
        self._looks.pass_ended(losses, trains=trains)
        self.hand.pass_ended(self._main.now(), creates_graph=creates_graph)
        has_ended = bool(self._pending) and self._settle(thread)
        if self._is_mark_pending:
            self._is_mark_pending, has_ended = False, True
            self._end_marked(thread)
        return has_ended

    def optimizer_stepped(self, optimizer: Optimizer, name: int, thread: ThreadState) -> bool:
        """An optimizer has stepped, of a class of that name; returns whether that ended a step."""
        recording = self._recording
        is_other = thread.native_id != recording.training_thread
        known = None if is_other else self._notes.again(optimizer)
        if known is None:
            recording.objects.made.add(optimizer)
        if is_other and self.counted.is_elsewhere(optimizer, thread):
            return False
        self.hand.optimizer_stepped()
        self._looks.optimizer_stepped()
        if self._task_id() != -1 or (self._passes and self._is_inside(thread)):
            self._pending.append((optimizer, name))
            return False
        is_alone = self._has_trained and not (self._pending or self._evaluations.is_on)
        if known is not None and is_alone and self._trainings.loop() is None:
            step = self._notes.note_again(optimizer, known)
            self._end_step(Ended(step.class_name, step.lr), thread, step.models)
            return True
        has_ended = bool(self._pending) and self._settle(thread)
        return self._step([(optimizer, name)], thread) or has_ended

    def step_marked(self, thread: ThreadState) -> bool:
        """The script says that a step ends; from now on only it does.

        Returns:
            Whether it has ended: in the middle of a backward pass it does so when that is over.
        """
        if self.counted.is_marked_elsewhere(thread):
            return False
        self._is_marked, self._notes.last, self.left_out.is_on = True, None, False
        self.hand.step_marked()
        if self._is_inside(thread):
            self._is_mark_pending = True
            return False
        self._settle(thread)
        self._held.forget()
        if not self._rows.is_open and self._rows.resume():  # its call was no inference
            self._count.inferred -= 1
        self._end_marked(thread)
        return True

    def told(self) -> str | None:
        """What ends a step, in words; None before the first has ended."""
        words = StepWords(self.hand, self._trainings, self._members, self.counted)
        is_stepping = self._recording.safe_points.stepping
        return words.told(self._count, is_stepping=is_stepping, is_marked=self._is_marked)

    def abandon(self) -> None:
        """Recording stops: the rows of the step in progress stay open."""
        self._pending.clear()
        self._passes, self._is_mark_pending = 0, False
        self._held.forget()
        self._looks.forget()
        self._notes.last = self.counted.inferring = None
        self._evaluations.forget()
        self._rows.abandon()

    def begin(self, *, late: bool) -> None:
        """Recording begins, perhaps in the middle of a training."""
        self._count.begin(late=late)
        self._trainings.now.pattern.is_late |= late

    def _restart(self) -> None:
        """What the step in progress has done was another thread's: it begins now."""
        self.is_inference = self._has_trained = False
        self._rows.restart(time.perf_counter_ns(), ())

    def _settle_held(self, thread: ThreadState) -> None:
        """Where no model is called mostly what is trained belongs to a held step."""
        if held := self._held.settle():
            self._end_step(held, thread)

    def _come(self, *, trains: bool = True) -> None:
        """Something may be trained; another asyncio task may train another model than the last."""
        if self._trainings.loop() is not None and self._trainings.come():
            self._notes.last = None
            self._recording.rows.switch(self._trainings.now.number)
            self._members.switch(self._trainings.now.number)
        if trains and self._evaluations.is_on:
            self._go_on()
        elif trains:
            self._has_trained = True

    def _evaluate(self, call: RootCall, thread: ThreadState) -> None:
        """A call that is evaluation begins."""
        recording, forward_ns = self._recording, self._rows.forward_ns
        self._main.take(call)
        recording.training_thread = recording.training_thread or thread.native_id
        self._evaluations.call_begins(recording.step, thread.native_id, call, forward_ns)

    def _is_evaluation(self, call: RootCall) -> bool:
        """Whether a call without gradients lies before what the next step trains."""
        if self._passes:
            return False
        if self._has_trained:
            if self._evaluations.is_amid(call.root, call.called):
                self._recording.rows.evaluation_begins()
                return True
            self._go_on()
            return False
        if not (call.has_optimizer or self.hand.is_on or self._recording.safe_points.stepping):
            return False
        is_evaluation = self._evaluations.is_evaluation(call.called, call.samples)
        if self._evaluations.is_on and not is_evaluation:
            self._go_on()
        return is_evaluation

    def _go_on(self) -> None:
        """Something is trained: what was evaluated since the last step is no part of this one."""
        has_trained, self._has_trained = self._has_trained, True
        if self._evaluations.is_on and has_trained:
            for wait in self._evaluations.resumed_amid():
                self._recording.rows.count_wait(wait)
        elif self._evaluations.is_on:
            self._rows.restart(*self._evaluations.resumed())

    def _is_inside(self, thread: ThreadState) -> bool:
        """Whether a backward pass is under way in which the calling thread works."""
        is_other = thread.native_id != self._recording.training_thread
        return self._task_id() != -1 or (self._passes > 0 and is_other)

    def _settle(self, thread: ThreadState) -> bool:
        """What has stepped in a backward pass has stepped; returns whether that ended a step."""
        pending, self._pending = self._pending, []
        return bool(pending) and self._step(pending, thread, in_pass=True)

    def _step(self, stepped: list[Stepped], thread: ThreadState, *, in_pass: bool = False) -> bool:
        """Optimizers have stepped together; returns whether that ended a training step."""
        recording, members = self._recording, self._members
        self._notes.last = None
        self._settle_held(thread)
        self._come()
        training, objects = self._trainings.now, recording.objects
        pattern, last = training.pattern, stepped[-1][0]
        recording.training_thread = thread.native_id
        step = self._notes.note(stepped, training.trained, in_pass=in_pass)
        self.counted.count(step.numbers)
        objects.optimizer = objects.optimizer or weakref.ref(last)
        if self._is_marked:
            return False
        period = pattern.period
        place = NO_PLACE if period else members.place()
        if not pattern.stepped(step.who, lambda: members.expected(pattern.since()), place):
            return False
        if pattern.period != period:
            training.learned_at = recording.step
        objects.optimizer = weakref.ref(last)
        if self._count.is_unknown:
            is_alone = members.is_alone()
            recording.step = self._count.learn(last, recording.step, is_alone=is_alone)
        ended = Ended(step.class_name, step.lr, pattern.missed)
        if not in_pass and self._held.holds(ended):
            return False
        is_steady = not in_pass and pattern.is_steady(step.who) and self._trainings.are_one
        models = self._notes.remember(last, step if is_steady else None, training.trained)
        self._end_step(ended, thread, models)
        return True

    def _end_marked(self, thread: ThreadState) -> None:
        """A step ends by the script's own mark."""
        self._recording.training_thread = thread.native_id
        self._end_step(Ended(), thread)

    def _end_step(self, ended: Ended, thread: ThreadState, models: int | None = None) -> None:
        """A step of training ends, and the next one begins; `models` names what it has trained."""
        recording, rows, training = self._recording, self._rows, self._trainings.now
        recording.safe_points.stepping = True
        self.is_inference, training.has_stepped = False, True
        if recording.carried.is_called:
            recording.carried.step_ended()
        first, started_ns = rows.trace_word, rows.started_ns
        models = self._main.trained(training.trained) if models is None else models
        rows.close(ended, thread.native_id, self._main.now(), models)
        self._members.step_ended()
        self._evaluations.step_ended()
        self._open(self._main.ids, thread, ended.now_ns)
        if first is not None and rows.trace_word is not None:
            self.on_step(first, rows.trace_word, rows.started_ns - started_ns)

    def _open(self, ids: Ids | None, thread: ThreadState, now_ns: int | None = None) -> None:
        """A step begins."""
        self._has_trained = False
        self._trainings.now.trained.clear()
        if self._evaluations.has_seen:
            self._evaluations.forget()
        self._rows.open(ids, thread.native_id, now_ns)
