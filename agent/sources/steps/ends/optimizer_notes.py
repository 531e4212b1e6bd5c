"""Which models the optimizers of a step train, and whether the next step is like the last one.

Rules of this file: runs in the training thread, as an optimizer has stepped; keeps nothing alive.
Most trainings have one optimizer, and each step is like the one before: what was found out for that
is still true then, and is not looked up again.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

from ...shared.recording import Recording
from ...torch_types import Optimizer
from ..optimizer_facts import learning_rate_of
from ..rows.optimizer_rows import OptimizerStep, Stepped
from .main_model import MainModel
from .members import Ids, Members

Trained = dict[int, tuple[weakref.ref[Any], Ids]]
"""Root modules that are trained, by identity, with the numbers of their names."""


class OptimizerNotes:
    """Writes rows of optimizers.

    Attributes:
        last: What the optimizer was known by that has made the last step alone; None where
            another step may not be like that.
        newest: What the optimizers were known by whose row was written last, but for steps that are
            like the last one; None before the first.
    """

    def __init__(self, recording: Recording, members: Members, main: MainModel) -> None:
        self._recording, self._members, self._main = recording, members, main
        self._optimizer: weakref.ref[Any] | None = None
        self._called: dict[int, tuple[weakref.ref[Any], Ids]] = {}
        self._groups = self._thread_id = 0
        self.last: OptimizerStep | None = None
        self.newest: OptimizerStep | None = None

    def note(self, stepped: Sequence[Stepped], trained: Trained, *, in_pass: bool) -> OptimizerStep:
        """Write the row of optimizers that have stepped together.

        Args:
            trained: Those of the step in progress, to which theirs are added.
            in_pass: Whether they have stepped in a backward pass.
        """
        members, roots, numbers = self._members, [], frozenset[int]()
        for optimizer, _ in stepped:
            member = members.known(optimizer)
            numbers |= member.alone
            for one in members.roots_of(optimizer, member):
                roots.append(one[0])
                trained[id(one[0])] = weakref.ref(one[0]), one[1]
        who = members.group_of(numbers) if in_pass else member.number
        name, models = members.name_number_of(optimizer, member), self._main.named(roots)
        lr, class_name = self._rate_of(optimizer), stepped[-1][1]
        step = OptimizerStep(who, name, class_name, len(stepped), models, lr, numbers)
        self.newest = step
        self._recording.rows.stepped(time.perf_counter_ns(), step)
        return step

    def remember(self, optimizer: Optimizer, step: OptimizerStep | None, trained: Trained) -> int:
        """A step ends: the next is like it if what is remembered here is so again.

        Args:
            step: What the optimizer is known by that has made it alone; None where others did.
            trained: What it has trained.

        Returns:
            The number of the names of that.
        """
        called, models = self._members.called, self._main.trained(trained)
        is_whole = bool(trained) and trained.keys() <= called.keys()
        self.last = step if is_whole and step is not None and step.models == models else None
        self._optimizer, self._called = weakref.ref(optimizer), called.copy()
        self._groups = len(getattr(optimizer, "param_groups", ()))
        self._thread_id = self._recording.training_thread
        return models

    def again(self, optimizer: Optimizer) -> OptimizerStep | None:
        """The last step, where an optimizer has made that too, of the same roots; else None."""
        last, reference = self.last, self._optimizer
        if last is None or reference is None or reference() is not optimizer:
            return None
        if self._called != self._members.called or len(optimizer.param_groups) != self._groups:
            return None
        is_same = self._thread_id == self._recording.training_thread
        return last if is_same and self._main.now() is not None else None

    def note_again(self, optimizer: Optimizer, step: OptimizerStep) -> OptimizerStep:
        """Write the row of a step that is like the last one, but for its rate; returns it."""
        groups = optimizer.param_groups
        lr = groups[0].get("lr") if groups else None
        if type(lr) is not float or self._recording.objects.held_lr:
            lr = self._rate_of(optimizer)
        if lr != step.lr:
            self.last = step = step._replace(lr=lr)
        self._recording.rows.stepped(time.perf_counter_ns(), step)
        return step

    def _rate_of(self, optimizer: Optimizer) -> float:
        """What an optimizer has stepped with, which an action may have set."""
        held = self._recording.objects.held_lr
        lr = held.get(id(optimizer)) if held else None
        return learning_rate_of(optimizer) if lr is None else lr
