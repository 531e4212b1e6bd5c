"""From when the steps of a training are counted.

Rules of this file: runs in the training thread, once per training and attach.
"""

from __future__ import annotations

from ...torch_types import Optimizer
from ..optimizer_facts import steps_of


class StepCount:
    """What is known of the number of the first step that was seen.

    Attributes:
        is_unknown: Whether the agent came late, and no step has ended since.
        inferred: Steps of inference before the first of training.
    """

    def __init__(self) -> None:
        self.inferred = 0
        self.is_unknown = False
        self._is_late = False
        self._by = ""

    def begin(self, *, late: bool) -> None:
        """Recording begins, perhaps in the middle of a training."""
        self.is_unknown = self._is_late = late

    def learn(self, optimizer: Optimizer, step: int, *, is_alone: bool) -> int:
        """The first step's end after the agent came: the optimizer may know which one it is.

        Args:
            step: The number that it has here.
            is_alone: Whether there is no other optimizer.

        Returns:
            Its number, as far as is known.
        """
        self.is_unknown = False
        count = steps_of(optimizer)
        if count is None or count <= step or not is_alone:
            return step
        self._by = type(optimizer).__name__
        return count - 1

    def told(self) -> str:
        """The same in words."""
        if self._by:
            return f"steps are counted from the script's start, by the count of {self._by}"
        counted = "from when the agent came" if self._is_late else "from the script's start"
        if self.inferred:
            counted = f"{counted}, {self.inferred} calls of a model before the training included"
        return f"steps are counted {counted}"
