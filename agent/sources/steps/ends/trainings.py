"""Trainings that asyncio tasks make side by side in one thread: whose is what happens now.

Rules of this file: no torch; runs in the training thread, a few times per step; keeps no task
and no model alive. A task that has ended, or that waits for the one which goes on, has handed its
training over.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from .step_pattern import StepPattern


class Training:
    """What is known of one training.

    Attributes:
        number: 0 for the first.
        pattern: Which optimizers make a step of it.
        learned_at: The step in which that was known.
        trained: By identity, the roots trained in its step in progress, with their numbers.
        has_stepped: Whether a step of it has ended.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.pattern = StepPattern()
        self.learned_at = 0
        self.trained: dict[int, tuple[weakref.ref[Any], tuple[int, int, int]]] = {}
        self.has_stepped = False
        self.owner: weakref.ref[Any] | None = None


class Trainings:
    """Those of one thread.

    Attributes:
        now: The one that goes on.
        loop: Gives the loop of asyncio that runs in the calling thread; None without, and then
            there are no tasks.
    """

    def __init__(self) -> None:
        self.now = Training(0)
        self._all = [self.now]
        self.loop: Callable[[], Any] = self._find_loop

    def come(self) -> bool:
        """Something is trained in the calling thread; returns whether it is another training."""
        task = _current_task()
        if task is None:
            return False
        owner = _of(self.now)
        if owner is task:
            return False
        before, self.now = self.now, self._training_of(task, owner)
        self.now.owner = weakref.ref(task)
        return self.now is not before

    def _find_loop(self) -> Any:
        """See `loop`; asyncio may not be imported so far, or not yet as a whole."""
        found = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
        if found is None:
            return None
        self.loop = found
        return found()

    @property
    def are_one(self) -> bool:
        """Whether there is one only, so far."""
        return len(self._all) == 1

    def is_left(self) -> bool:
        """Whether another training goes on in the calling thread than the one before."""
        task, owner = _current_task(), _of(self.now)
        return task not in {None, owner} and not _has_handed_over(owner, task)

    def told(self) -> str | None:
        """How many train side by side, in words; None for one."""
        count = sum(training.has_stepped for training in self._all)
        if count < 2:
            return None
        return (
            f"{count} asyncio tasks train in one thread: each step is of one of them, and its times"
            " are of all that was done since the step before"
        )

    def _training_of(self, task: Any, owner: Any) -> Training:
        """That of a task: its own, else one that was handed over, else a new one."""
        for training in self._all:
            if _of(training) is task:
                return training
        if _has_handed_over(owner, task):
            return self.now
        for training in self._all:
            if _has_handed_over(_of(training), task):
                return training
        self._all.append(Training(len(self._all)))
        return self._all[-1]


def _of(training: Training) -> Any:
    """The task that a training was last seen in, while it lives."""
    return training.owner() if training.owner is not None else None


def _has_handed_over(owner: Any, task: Any) -> bool:
    """Whether what a task has trained is trained by another one from now on."""
    return owner is None or owner.done() or getattr(owner, "_fut_waiter", None) is task


def _current_task() -> Any:
    """The task of asyncio that runs in the calling thread; None without."""
    asyncio: Any = sys.modules.get("asyncio")
    try:  # asked a few times per step; it may be in the middle of being imported
        return None if asyncio._get_running_loop() is None else asyncio.current_task()
    except AttributeError:
        return None
