"""What recorded sources share: the rings, the names, and who is who in the process.

Rules of this file: no hooks; state only. Runs in the training threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ....ring.native import new_moment
from ....ring.writer import Names, RingWriter
from ...recording.safe_points import SafePoints
from ...recording.training_thread import Trainers
from ..steps.ends.carried_gradients import CarriedGradients
from ..steps.rows.step_rows import StepRows
from .events import Events
from .looks import Looks
from .objects import Objects
from .step_costs import StepCosts
from .thread_state import ThreadStates


class RootCall(NamedTuple):
    """A call of a root module.

    Attributes:
        called: What was called of it: itself, unless it was called past its own call.
        ids: The numbers of the root's name, class and root class.
        has_grad: Whether gradients are on.
        has_optimizer: Whether an optimizer exists.
        samples: How many samples it is given, where that is known.
    """

    root: Any
    called: Any
    ids: tuple[int, int, int]
    has_parameters: bool
    has_grad: bool
    has_optimizer: bool
    samples: int | None

    @property
    def may_train(self) -> bool:
        """Whether it may be part of a training."""
        return self.has_grad and self.has_optimizer


class OomWatch(Protocol):
    """Records out-of-memory errors."""

    def raised(self, phase: int) -> None:
        """An exception has ended a call."""

    def step_began(self) -> None:
        """A step begins in which a device is in use."""


class Recording:
    """Everything a recorded source needs.

    Attributes:
        trace: The ring of python.torch_trace.
        rows: The rows of python.steps and python.micro_batches.
        now: What every module call reads: the step, and when memory is sampled next.
        threads: What each thread is in the middle of.
        objects: The models, optimizers and tensors that were met.
        events: Who is called at the events of a step.
        looks: What looks at the training while somebody has asked for it.
        ooms: What records out-of-memory errors, while recording is on.
        collectives: What records collectives, while it does.
        carried: What knows passes that carry on the gradients of others.
        training_thread: The kernel number of the thread whose steps are counted: that which last
            called a root module or stepped an optimizer of its training; while nobody trains, that
            which last called any; 0 before that.
        trainers: Which threads train, counted or not.
        passing: The kernel numbers of the threads that are inside a backward pass.
        sees_passes: Whether all passes that begin are among those.
        session: How often recording has begun or ended; a thread that has been let in since knows
            the number.
        costs: What sources do a few times per step.
        awaits_step: Whether recording began in the middle of a training and waits for the end of
            the step in progress.
        ended_step: The step that has ended last, while nothing of the next one has been seen: no
            batch, call of a model or backward pass. None otherwise.
    """

    def __init__(
        self, *, trace: RingWriter, rows: StepRows, names: Names, safe_points: SafePoints
    ) -> None:
        self.trace = trace
        self.rows = rows
        self.now = new_moment()
        self.names = names
        self.safe_points = safe_points
        self.threads = ThreadStates()
        self.objects = Objects()
        self.events = Events()
        self.looks = Looks()
        self.ooms: OomWatch | None = None
        self.collectives: Any = None
        self.carried = CarriedGradients()
        self.training_thread = 0
        self.trainers = Trainers()
        self.passing: set[int] = set()
        self.sees_passes = False
        self.session = 0
        self.costs = StepCosts()
        self.awaits_step = False
        self.ended_step: int | None = None

    @property
    def step(self) -> int:
        """The number of the step in progress, from 0."""
        return self.now.step

    @step.setter
    def step(self, number: int) -> None:
        self.now.step = number

    def note_trainer(self, number: int) -> None:
        """The calling thread trains, by its kernel number; not one of autograd's, within a pass.

        Who calls it for each pass or step looks first whether that is known.
        """
        if not self.safe_points.at_work.is_here():
            self.trainers.threads.add(number)

    @property
    def told_step(self) -> int:
        """The step that what the script tells now belongs to: scripts log when one has ended."""
        ended = self.ended_step
        return self.now.step if ended is None else ended
