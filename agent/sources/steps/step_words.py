"""What ends a step, and whose steps are counted, in words.

Rules of this file: runs in any thread; reads what the training thread keeps, and changes nothing.
"""

from __future__ import annotations

from .ends.counted_thread import CountedThread
from .ends.hand_steps import HandSteps
from .ends.members import Members
from .ends.step_count import StepCount
from .ends.trainings import Trainings

_INFERENCE = (
    "no training is seen: each call of a model is a step, unless the script calls probing.step()"
)
_AT_ONCE = "; of calls that several threads make at once, one is"


class StepWords:
    """Tells of the parts that decide."""

    def __init__(
        self, hand: HandSteps, trainings: Trainings, members: Members, thread: CountedThread
    ) -> None:
        self._hand = hand
        self._trainings = trainings
        self._members = members
        self._thread = thread

    def told(self, count: StepCount, *, is_stepping: bool, is_marked: bool) -> str | None:
        """All of it; None before the first step has ended."""
        if not is_stepping:
            at_once = _AT_ONCE if self._thread.infers_beside else ""
            return f"{_INFERENCE}{at_once}" if count.inferred else None
        parts = (self._ends(count, is_marked=is_marked), self._thread.told())
        return "; ".join(part for part in parts if part is not None)

    def _ends(self, count: StepCount, *, is_marked: bool) -> str:
        """What ends a step, and from when they are counted."""
        if is_marked:
            return "a step ends where the script calls probing.step()"
        if self._hand.is_on:
            return "no optimizer of torch steps: a step ends as the gradients of a pass were used"
        training = self._trainings.now
        ends = self._trainings.told() or self._members.told(training.pattern, training.learned_at)
        return f"{ends}; {count.told()}"
