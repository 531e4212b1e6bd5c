"""One look at the memory of a training: at the end of a step, and as the next backward pass begins.

Rules of this file: what looks runs in the training thread. From the one moment to the other each
module's call notes how far autograd has counted, which tells later in whose call a node was made;
the hooks for that are gone before the backward pass. Only numbers and texts are kept.
"""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....tables import MOMENTS
from ...guard import Guard
from ..finite_hooks import Hooks, Watched
from ..recording import Recording
from .living import Survey
from .storages import Storage, storages_now, survey_now

NOW, BEFORE_BACKWARD = MOMENTS


class Moment(NamedTuple):
    """All storages at one moment.

    Attributes:
        moment: Which.
        step: The step in progress; None where none is counted.
        storages: What there was.
        held_s: How long the training stood still for it.
    """

    moment: str
    step: int | None
    storages: tuple[Storage, ...]
    held_s: float


class MemoryLook:
    """A `StepEndJob`; `recording.memory_look` from one moment to the other.

    Attributes:
        moments: What has been seen so far.
        is_over: Set when there is nothing more to come.
        reason: Why it failed; None if it has not.
    """

    def __init__(self, recording: Recording) -> None:
        self._survey = survey_now()
        self.moments: list[Moment] = []
        self.is_over = threading.Event()
        self.reason: str | None = None
        self._recording = recording
        self._thread = 0
        self._calls: _Calls | None = None
        self._hooks: Hooks | None = None
        self._guard = Guard("memory", lambda: None)

    def step_ended(self) -> bool:
        """The first time, look and have the modules' calls noted; the second time, leave."""
        if self._calls is not None or self.is_over.is_set():
            self._leave()
            return True
        self._thread = threading.get_ident()
        recording = self._recording
        step = recording.step if recording.training_thread else None
        self.moments.append(look(recording, NOW, step, survey=self._survey))
        self._calls = _Calls(self._thread)
        self._hooks = Hooks(recording, self._calls)
        recording.memory_look = self
        if self._calls.can_count:
            self._hooks.put_on()
        return False

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self.reason = reason
        self._leave()

    def backward_began(self, args: tuple[Any, ...]) -> None:
        """A backward pass is about to begin; runs in the thread that calls it, and never raises."""
        if threading.get_ident() == self._thread and len(self.moments) == 1:
            self._guard.run(self._look_again, args)
            self.reason = self._guard.problem
            self._leave()

    def give_up(self) -> None:
        """Nobody waits any more."""
        self.is_over.set()

    def _look_again(self, args: tuple[Any, ...]) -> None:
        results = args[0] if args and isinstance(args[0], tuple | list) else ()
        plain = sys.modules["torch"].Tensor
        tensors = [one for one in results if isinstance(one, plain)]
        moment = look(self._recording, BEFORE_BACKWARD, self._recording.step, tensors, self._survey)
        assert self._calls is not None
        named = tuple(self._calls.named(storage) for storage in moment.storages)
        self.moments.append(moment._replace(storages=named))

    def _leave(self) -> None:
        """Leave everything as it was."""
        if self._recording.memory_look is self:
            self._recording.memory_look = None
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            self._guard.run(hooks.take_off)
        self.is_over.set()


class _Calls:
    """Notes between which nodes each module's call lies: a `Watcher`.

    Attributes:
        can_count: Whether this torch tells how far autograd has counted.
    """

    def __init__(self, thread: int) -> None:
        core = sys.modules["torch"]._C._autograd
        self._number: Any = getattr(core, "_get_sequence_nr", None)
        self.can_count = self._number is not None
        self._thread = thread
        self._numbers: list[int] = []
        self._modules: list[str | None] = []
        self._stack: list[Watched] = []

    def entered(self, watched: Watched, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """See `Watcher`."""
        if threading.get_ident() == self._thread:
            self._stack.append(watched)
            self._note()

    def left(
        self,
        watched: Watched,
        _args: tuple[Any, ...],
        _kwargs: dict[str, Any],
        _result: Any,
    ) -> None:
        """See `Watcher`."""
        if threading.get_ident() == self._thread and watched in self._stack:
            while self._stack.pop() is not watched:
                pass  # a call inside it that ended by an exception
            self._note()

    def named(self, storage: Storage) -> Storage:
        """An activation with the module in whose call it was saved."""
        if storage.number is None or storage.module is not None:
            return storage
        place = bisect_right(self._numbers, storage.number) - 1
        return storage if place < 0 else storage._replace(module=self._modules[place])

    def _note(self) -> None:
        """From the next node on, the innermost module is another one."""
        self._numbers.append(self._number())
        self._modules.append(self._stack[-1].name if self._stack else None)


def look(
    recording: Recording | None,
    moment: str,
    step: int | None,
    results: Sequence[Any] = (),
    survey: Survey | None = None,
) -> Moment:
    """Look at everything, here and now."""
    start = time.perf_counter()
    storages = storages_now(recording, results, survey)
    return Moment(moment, step, tuple(storages), time.perf_counter() - start)
