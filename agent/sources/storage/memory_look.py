"""One look at the memory of a training: at the end of a step, and as the next backward pass begins.

Rules of this file: what looks runs in the training thread. From the one moment to the other each
module's call notes how far autograd has counted, which tells later in whose call a node was made;
the hooks for that are gone before the backward pass. Only numbers and texts are kept. Who gives up
leaves from a thread of the agent, and may wait for the training; the training never waits for him.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ....safety.guard import Guard
from ....tables import MOMENTS
from ..numbers.nonfinite.finite_hooks import Hooks
from ..shared.recording import Recording
from .births import births_of
from .bounded.sights import Limits
from .living import Survey
from .saving_calls import SavingCalls
from .storages import Storage, storages_now
from .surveyor import surveyor_of

NOW, BEFORE_BACKWARD = MOMENTS
_LONGEST_S = 0.3
"""Of the way through autograd's graphs."""


class Moment(NamedTuple):
    """All storages at one moment.

    Attributes:
        moment: Which.
        step: The step in progress; None where none is counted.
        storages: What there was.
        held_s: How long the training stood still for it.
        time_ns: When that was, since the epoch.
        nodes: How many nodes of autograd's graphs there was time for; None where for all.
        left_out: How many tensors without a purpose there was no time for.
        knows_gradients: Whether gradients could be told from other tensors.
    """

    moment: str
    step: int | None
    storages: tuple[Storage, ...]
    held_s: float
    time_ns: int = 0
    nodes: int | None = None
    left_out: int = 0
    knows_gradients: bool = True


class MemoryLook:
    """A `StepEndJob`; `recording.looks.memory` from one moment to the other.

    Args:
        only_backward: Leave the first moment out, which holds the training as long as the other.

    Attributes:
        moments: What has been seen so far.
        has_begun: Whether the first moment has come.
        is_over: Set when there is nothing more to come.
        reason: Why it failed; None if it has not.
    """

    def __init__(self, recording: Recording, *, only_backward: bool = False) -> None:
        self._only_backward = only_backward
        self._survey = surveyor_of(recording).survey().result()
        self._births = births_of(recording)
        self.moments: list[Moment] = []
        self.has_begun = False
        self.is_over = threading.Event()
        self.reason: str | None = None
        self._recording = recording
        self._thread = 0
        self._calls: SavingCalls | None = None
        self._hooks: Hooks | None = None
        self._is_watching = False
        self._guard = Guard("memory", lambda: None)
        self._lock = threading.RLock()

    def step_ended(self) -> bool:
        """The first time, look and have the modules' calls noted; the second time, leave."""
        if not self._lock.acquire(blocking=False):  # it is just given up
            return True
        try:
            return self._has_left()
        finally:
            self._lock.release()

    def _has_left(self) -> bool:
        """See `step_ended`."""
        if self._calls is not None or self.is_over.is_set():
            self._leave()
            return True
        self._thread = threading.get_ident()
        self._births.begin()
        self._is_watching = True
        recording = self._recording
        if not self._only_backward:
            step = recording.step if recording.training_thread else None
            self.moments.append(look(recording, NOW, step, survey=self._survey))
        self.has_begun = True
        self._calls = SavingCalls(self._thread)
        self._hooks = Hooks(recording, self._calls)
        recording.looks.memory = self
        if self._calls.can_count:
            self._hooks.put_on()
        return False

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self.reason = reason
        self._leave()

    def backward_began(self, args: tuple[object, ...]) -> None:
        """A backward pass is about to begin; runs in the thread that calls it, and never raises."""
        if threading.get_ident() != self._thread or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._has_seen_backward and not self.is_over.is_set():
                self._guard.run(self._look_again, args)
                self.reason = self._guard.problem
                self._leave()
        finally:
            self._lock.release()

    def give_up(self) -> None:
        """Nobody waits any more: take the hooks off from here, in whichever thread this is."""
        self.is_over.set()
        with self._lock:
            self._leave()

    @property
    def _has_seen_backward(self) -> bool:
        return any(moment.moment == BEFORE_BACKWARD for moment in self.moments)

    def _look_again(self, args: tuple[object, ...]) -> None:
        results = args[0] if args and isinstance(args[0], tuple | list) else ()
        plain = sys.modules["torch"].Tensor
        tensors = [one for one in results if isinstance(one, plain)]
        moment = look(self._recording, BEFORE_BACKWARD, self._recording.step, tensors, self._survey)
        assert self._calls is not None
        self.moments.append(moment._replace(storages=self._calls.all_named(moment.storages)))

    def _leave(self) -> None:
        """Leave everything as it was."""
        if self._recording.looks.memory is self:
            self._recording.looks.memory = None
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            self._guard.run(hooks.take_off)
        if self._is_watching:
            self._is_watching = False
            self._guard.run(self._births.end)
        self.is_over.set()


def look(
    recording: Recording | None,
    moment: str,
    step: int | None,
    results: Sequence[object] = (),
    survey: Survey | None = None,
    *,
    is_still: bool = False,
) -> Moment:
    """Look at everything, here and now.

    Args:
        is_still: Whether that is beside a training that was proven to stand still.
    """
    start, time_ns = time.perf_counter(), time.time_ns()
    sight = None
    if recording is not None:
        is_next = moment == BEFORE_BACKWARD  # the moment before was the beginning of this step
        sight = births_of(recording).sighting(step if is_next else None)
    limits = Limits(_LONGEST_S)
    limits.is_still = is_still
    storages = storages_now(recording, results, survey, sight, limits)
    held_s = time.perf_counter() - start
    nodes, left_out = limits.reach.most, limits.left_out
    told = tuple(storages)
    return Moment(moment, step, told, held_s, time_ns, nodes, left_out, limits.knows_gradients)
