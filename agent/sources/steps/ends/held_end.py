"""The end of a step that the next call of a model decides on, while a training is new.

Rules of this file: runs in the training thread, a few times per step; decides, and writes nothing.
Where optimizers exist whose models were not called so far, nothing shows at the end of another
one's step whether they belong to the same step: an actor and a critic look like two trainings one
behind the other. What is trained next shows it: a model that was called before begins another step.
"""

from __future__ import annotations

import time

from ...shared.recording import RootCall
from ..rows.open_step import Ended
from .members import Members
from .trainings import Trainings


class HeldEnd:
    """A step that is over, unless another model is trained next.

    Attributes:
        step: It; None while there is none.
    """

    def __init__(self, members: Members, trainings: Trainings) -> None:
        self._members = members
        self._trainings = trainings
        self.step: Ended | None = None

    def holds(self, ended: Ended) -> bool:
        """Whether it is not known yet that a step has ended, whose end the pattern has told."""
        training = self._trainings.now
        is_new = not training.pattern.period and self._trainings.are_one
        if is_new and training.trained and self._members.has_others(training.pattern.since_last()):
            self.step = ended._replace(now_ns=time.perf_counter_ns())
        return self.step is not None

    def ended(self, call: RootCall | None = None) -> Ended | None:
        """The held step, if it has ended: by a call of a root, or else by a batch for the next.

        A call that shows that it has not has it go on.
        """
        held, self.step = self.step, None
        if held is None or call is None or not self._is_part(call):
            return held
        self._trainings.now.pattern.resume()
        return None

    def settle(self) -> Ended | None:
        """The held step, if another task goes on; else what is trained now is a part of it."""
        if self.step is None:
            return None
        held, self.step = self.step, None
        if held is not None and not self._trainings.is_left():
            self._trainings.now.pattern.resume()
            return None
        return held

    def forget(self) -> None:
        """The step is over in any case."""
        self.step = None

    def _is_part(self, call: RootCall) -> bool:
        """Whether what is called is trained in the held step."""
        if not (call.has_grad and call.has_parameters) or self._trainings.is_left():
            return False
        since = self._trainings.now.pattern.since_last()
        return self._members.is_of_others(call.root, since)
