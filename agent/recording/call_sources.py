"""The sources of module calls, backward passes and graph replays, and the budget that thins them.

Rules of this file: makes them, in the order in which they need each other; they know each other by
what they are made with, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from ..sources.accelerator import Accelerator
from ..sources.calls.backward.module_backward import ModuleBackward
from ..sources.calls.backward.passes import BackwardPasses
from ..sources.calls.budget import Budget
from ..sources.calls.graphs import GraphReplays
from ..sources.calls.modules import ModuleCalls
from ..sources.calls.names.module_names import ModuleNames
from ..sources.memory.sampler import MemorySampler
from ..sources.shared.recording import Recording
from ..sources.steps.boundary import Boundary
from ..sources.steps.gradient_scaler import GradientScaler
from ..sources.steps.progress import Progress
from .rings import Rings


class CallSources:
    """What records the calls of a training's modules.

    Attributes:
        names: What modules are called in rows.
        hooks: The hooks of the modules' own backward passes.
        budget: What chooses the modules that are on record at every step.
        calls: The forward calls.
        passes: The backward passes as a whole.
        graphs: The replays of recorded graphs of a device.
        scaler: What is known of gradients' scales.
    """

    def __init__(
        self,
        shared: tuple[Recording, Progress, MemorySampler, Boundary],
        rings: Rings,
        accelerator: Accelerator,
        *,
        share: float,
        in_c: bool,
    ) -> None:
        """Make them.

        Args:
            share: The part of a step that all recording may cost.
            in_c: Whether calls are recorded by the C part, where it was built.
        """
        recording, progress, memory, boundary = shared
        self._progress = progress
        self._first_step_seen: Callable[[], None] = lambda: None
        self.names = ModuleNames(recording.names, recording.objects.models)
        self.hooks = ModuleBackward(recording, memory, self.names)
        self.budget = Budget(recording, self.names, self.hooks, rings.overhead, share)
        self.scaler = GradientScaler(recording, accelerator, progress.left_out)
        self.calls = ModuleCalls(*shared, self.names, self.hooks, in_c=in_c)
        self.graphs = GraphReplays(*shared)
        self.passes = BackwardPasses(
            recording, progress, boundary, self.hooks, self.scaler, accelerator
        )

    def hear_of_steps(self, first_step_seen: Callable[[], None]) -> None:
        """Have the budget hear of the end of each step, and somebody else of the first."""
        self._first_step_seen = first_step_seen
        self._progress.on_step = self._first_step_ended

    def _first_step_ended(self, first: int, last: int, took_ns: int) -> None:
        """The first step has ended; of the others only the budget hears."""
        self._progress.on_step = self.budget.step_ended
        self.budget.step_ended(first, last, took_ns)
        self._first_step_seen()
