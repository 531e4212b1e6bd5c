"""Which thread's steps are counted, where several train.

Rules of this file: runs in the training threads, once per pass and step. What belongs to a training
beside the counted one is no part of any step: its calls, passes, losses and optimizers. A thread
trains by itself if it makes backward passes and steps an optimizer; one that only computes for the
counted training, or only steps its optimizers, takes part in that. One that calls models without
gradients and has trained nothing, such as an actor that plays by the policy, takes no part. Where
nothing is trained, no step is a call that begins during another thread's, until that has lasted as
long as many others.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

from .....safety.this_thread import known_thread, thread_name
from ...shared.recording import Recording, RootCall
from ...shared.thread_state import ThreadState
from ...torch_types import Module, Optimizer
from .members import Ids, Members

_PATIENCE, _PATIENCE_NS = 8, 10_000_000_000
"""How often an optimizer steps in another thread, and how long the counted one trains nothing,
before that is the one that counts. The same, for each thread, of calls beside one that infers."""


class CountedThread:
    """That which trained first, until it ends, or another one steps again and again meanwhile.

    Attributes:
        inferring: The thread whose call of a model is the step in progress, one of inference.
        infers_beside: Whether another one has called a model meanwhile.
        signs: How often the counted one was seen to train, by its passes and its calls of a model.
        deciding: Held while it is found which thread that is.
    """

    def __init__(self, recording: Recording, members: Members, restart: Callable[[], None]) -> None:
        """Begin with none.

        Args:
            restart: Has the step in progress begin anew: what it has done was another thread's.
        """
        self._recording = recording
        self._members = members
        self._restart = restart
        self.inferring: ThreadState | None = None
        self.infers_beside = False
        self._calls_beside = 0
        self.signs = 0
        self._elsewhere = self._seen_signs = self._since_ns = 0
        self._counted: set[int] = set()
        self._passed: set[int] = set()  # threads that made a pass since they stepped
        self._undecided: dict[int, tuple[weakref.ref[Module], Ids]] = {}  # roots that they called
        self._beside: dict[int, str] = {}
        self.deciding = threading.RLock()  # a signal's handler may come back here

    def count(self, numbers: frozenset[int]) -> None:
        """Optimizers of these numbers make the steps that are counted."""
        self._counted.update(numbers)

    def infers(self, thread: ThreadState | None) -> None:
        """A call of a model begins a step: one of inference, unless there is no thread."""
        self.inferring, self._calls_beside = thread, 0

    def is_apart(
        self, thread: ThreadState, call: RootCall, *, is_main: bool, has_trained: bool
    ) -> bool:
        """Whether a root that a thread calls is no part of the counted training, or inference.

        Args:
            is_main: Whether it is the model that counts.
            has_trained: Whether the step in progress, one of training, has trained something.
        """
        counted = self._recording.training_thread
        if not self._is_other(thread):
            if not has_trained:
                return not call.may_train and self._is_beside(is_main=is_main)
            if not _is_there(counted):
                return False
            if call.has_parameters:  # its backward pass will show who trains
                self._undecided[thread.native_id] = weakref.ref(call.root), call.ids
            return True
        has_trainer = not self._only_calls(counted)
        if self._follows(thread):
            if not (is_main and has_trainer):
                self._restart()
            return False
        if has_trained or not is_main or thread.native_id in self._beside:
            return True
        return has_trainer and not call.has_grad and self._only_calls(thread.native_id)

    def passes(self, thread: ThreadState) -> bool:
        """A thread is about to make a backward pass, outside of any other.

        Returns:
            Whether it is the counted one: maybe from now on, because that has ended, or only calls
            models.
        """
        recording, number = self._recording, thread.native_id
        if number == recording.training_thread and number in recording.trainers.threads:
            return True
        with self.deciding:
            if self._only_calls(number):
                recording.note_trainer(number)
            recording.training_thread = recording.training_thread or number
            if number == recording.training_thread:
                return True
            self._passed.add(number)
            is_next = self._is_other(thread) and self._follows(thread)
        if is_next:
            self._restart()
        return is_next

    def is_marked_elsewhere(self, thread: ThreadState) -> bool:
        """Whether a step that the script marks is of another training."""
        is_elsewhere = self._is_own(thread) and not self._follows(thread)
        if is_elsewhere:
            self._stands_beside(thread)
        return is_elsewhere

    def is_elsewhere(self, optimizer: Optimizer, thread: ThreadState) -> bool:
        """Whether an optimizer that has stepped is of another training."""
        if thread.native_id == self._recording.training_thread or not self._is_other(thread):
            return False
        number = self._members.number_of(optimizer)
        takes_part = number in self._counted or self._members.is_of_called(optimizer)
        if takes_part and not self._is_own(thread):
            self._elsewhere = 0
            return False
        if self._follows(thread):
            return False
        now_ns = time.perf_counter_ns()
        if self.signs != self._seen_signs:  # the counted one goes on
            self._elsewhere, self._seen_signs, self._since_ns = 0, self.signs, now_ns
        self._elsewhere += 1
        self._stands_beside(thread)
        if self._elsewhere <= _PATIENCE or now_ns - self._since_ns < _PATIENCE_NS:
            self._recording.objects.beside.add(optimizer)
            return True
        self._take(thread)
        self._restart()
        return True  # its beginning was not seen

    def told(self) -> str | None:
        """Who trains beside the counted one, in words; None for nobody."""
        names = {getattr(t, "native_id", None): thread_name(t) for t in threading.enumerate()}
        beside = [name for number, name in self._beside.copy().items() if _is_there(number)]
        if not beside:
            return None
        number = self._recording.training_thread
        counted = names.get(number, str(number))
        train = "trains" if len(beside) == 1 else "train"
        return (
            f"steps, losses and phases are those of thread {counted}; {', '.join(beside)} {train}"
            " beside it, and no step of that is on record"
        )

    def _is_other(self, thread: ThreadState) -> bool:
        """Whether a thread is not the counted one, and one of them trains."""
        recording = self._recording
        counted = recording.training_thread
        if counted in {0, thread.native_id}:
            return False
        one_trains = not (self._only_calls(counted) and self._only_calls(thread.native_id))
        return one_trains or recording.safe_points.stepping

    def _only_calls(self, number: int) -> bool:
        """Whether a thread has only called models, as far as was seen."""
        return number not in self._recording.trainers.threads

    def _is_beside(self, *, is_main: bool) -> bool:
        """Whether another thread's call is the step, until it has outlasted many others."""
        if self.inferring is None:
            return False
        self.infers_beside = True
        self._calls_beside += is_main
        if self._calls_beside > _PATIENCE * threading.active_count():
            self.inferring = None
        return self.inferring is not None

    def _is_own(self, thread: ThreadState) -> bool:
        """Whether another thread than the counted one steps what it has made a pass for."""
        return self._is_other(thread) and thread.native_id in self._passed

    def _stands_beside(self, thread: ThreadState) -> None:
        """A thread has made a step of a training of its own."""
        self._passed.discard(thread.native_id)
        if thread.native_id not in self._beside:
            known = known_thread()
            name = f"thread {thread.native_id}" if known is None else thread_name(known)
            self._beside[thread.native_id] = name

    def _follows(self, thread: ThreadState) -> bool:
        """Whether a thread trains in the place of one that has ended, or has only called models."""
        with self.deciding:
            counted = self._recording.training_thread
            one_trains = self._only_calls(counted) and not self._only_calls(thread.native_id)
            if _is_there(counted) and not one_trains:
                return False
            self._take(thread)
        return True

    def _take(self, thread: ThreadState) -> None:
        """Another thread is the counted one from now on; the step is of what it has called."""
        self._beside.pop(thread.native_id, None)
        self._counted.clear()
        called = self._undecided.get(thread.native_id)
        self._undecided.clear()
        self._members.step_ended()
        if called is not None and (root := called[0]()) is not None:
            self._members.root_called(root, called[1])
        self._elsewhere = 0
        self.inferring, recording = None, self._recording
        if _is_there(recording.training_thread):
            # Amid a step of its own, as two that begin at once: what it steps next is its alone.
            self._passed.add(recording.training_thread)
        recording.objects.beside.clear()
        recording.training_thread = thread.native_id


def _is_there(number: int) -> bool:
    """Whether a thread of this process has not ended; Python does not know all of them."""
    return os.path.exists(f"/proc/self/task/{number}")
