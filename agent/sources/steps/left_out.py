"""Steps of optimizers that a gradient scaler leaves out, because gradients have overflowed.

Rules of this file: runs in the training thread, as a scaler has left out a step; writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..shared.thread_state import ThreadState
from ..torch_types import Optimizer
from .ends.held_end import HeldEnd
from .ends.members import Members
from .ends.optimizer_notes import OptimizerNotes
from .ends.trainings import Trainings
from .rows.open_step import Ended


class LeftOut:
    """Tells the pattern of those of several optimizers: the others' steps end one all the same.

    Attributes:
        is_on: Whether optimizers end the steps.
    """

    def __init__(
        self,
        members: Members,
        trainings: Trainings,
        held: HeldEnd,
        notes: OptimizerNotes,
        end: Callable[[Ended, ThreadState], None],
    ) -> None:
        """Begin with none; `end` ends a step."""
        self._members, self._trainings = members, trainings
        self._held, self._notes, self._end = held, notes, end
        self.is_on = True

    def came(self, optimizer: Optimizer, thread: ThreadState) -> bool:
        """An optimizer's step was left out; returns whether that ended a training step."""
        members, pattern = self._members, self._trainings.now.pattern
        who = members.number_of(optimizer)
        if not self.is_on or not pattern.left_out(who, lambda: members.expected(pattern.since())):
            return False
        last = self._notes.newest
        ended = Ended(missed=pattern.missed)
        if last is not None:
            ended = ended._replace(optimizer=last.class_name, lr=last.lr)
        if self._held.holds(ended):
            return False
        self._end(ended, thread)
        return True
