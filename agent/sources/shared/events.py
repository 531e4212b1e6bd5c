"""Who is called at the events of a step: before and after an optimizer's step, or a backward pass.

Rules of this file: state only. What is called runs in the training thread, and keeps its own
faults. The lists are tuples, which are replaced: whoever walks over one sees no change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

StepLook = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]


class Events:
    """Who is called, in that order.

    Attributes:
        before_step: As an optimizer is about to step, with it and the arguments of its step.
        after_step: The same, as it has stepped.
        before_backward: As a backward pass of the training's step is about to begin, with the
            arguments of the engine.
        after_backward: As such a pass has ended, with the arguments of the engine and what it
            returned.
    """

    def __init__(self) -> None:
        self.before_step: tuple[StepLook, ...] = ()
        self.after_step: tuple[StepLook, ...] = ()
        self.before_backward: tuple[Callable[[tuple[Any, ...]], None], ...] = ()
        self.after_backward: tuple[Callable[[tuple[Any, ...], Any], None], ...] = ()

    def forget(self, *calls: object) -> None:
        """Call these no more."""
        self.before_step = tuple([call for call in self.before_step if call not in calls])
        self.after_step = tuple([call for call in self.after_step if call not in calls])
        self.before_backward = tuple([call for call in self.before_backward if call not in calls])
        self.after_backward = tuple([call for call in self.after_backward if call not in calls])
