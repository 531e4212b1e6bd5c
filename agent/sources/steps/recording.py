"""What recorded sources share: the rings, the names, and who is who in the process.

Rules of this file: no hooks; state only. Runs in the training threads.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ....ring.format import NULL_FLOAT, NULL_INT, NULL_NAME
from ....ring.native import Thread, new_moment
from ....ring.writer import Names, RingWriter
from ....tables import STAGES
from ...recording.safe_points import AGENT_THREAD_PREFIX, SafePoints
from ..data.inputs import Inputs
from ..model.given_names import ModelNames, optimizer_names
from ..numbers.number import Number
from .met import Met
from .step_rows import StepRows

StepLook = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]

MAX_DEPTH = 255
FORWARD, BACKWARD = STAGES.index("forward"), STAGES.index("backward")
OPEN_ROW = struct.Struct("<QqI12s24sQ")
"""A whole row of torch_trace in few pieces: the module's numbers are packed beforehand, and so is
all that the thread knows of its calls, down to the closing columns."""
CLOSE_ROW = struct.Struct("<qqQ")
COLUMNS = """
    start_ns:q step:I module:I class:I root:I
    thread_id:I stage:B depth:B recomputed:B training:B duration_ns:q allocated_bytes:q
"""
"""What the two pack."""
_FACTS = struct.Struct("<IBBBBqq")
_COLLECTIVE_FACTS = struct.Struct("<IB7xIqdqq")
_DEPTH_AT = 5


def _facts(native_id: int, stage: int, *, recomputing: bool, training: bool) -> list[bytes]:
    """What of an opened row depends on thread and depth alone, packed as it stands in the row."""
    at_top = _FACTS.pack(native_id, stage, 0, recomputing, training, NULL_INT, NULL_INT)
    before, behind = at_top[:_DEPTH_AT], at_top[_DEPTH_AT + 1 :]
    return [before + bytes((depth,)) + behind for depth in range(MAX_DEPTH + 1)]


class Clip(NamedTuple):
    """What the script clips gradients to.

    Attributes:
        ends: The first and the last of the parameters whose gradients it clips.
        tensors: How many they are.
    """

    max_norm: float
    ends: tuple[weakref.ref[Any], weakref.ref[Any]]
    tensors: int


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


class ThreadState(Thread):
    """What one thread is in the middle of.

    Attributes:
        depth: Module calls it is inside of.
        recomputing: Whether it runs forward code inside a backward pass.
        root: The outermost module being called.
        facts: By depth, up to `MAX_DEPTH`: thread, stage, depth, both flags and no closing
            columns, packed.
        is_agents: Whether it is one of the agent's own threads, whose calls are no progress.
        is_apart: Whether it works on a copy of the model, and is to leave no record.
        is_evaluating: Whether it is inside a call of a root that is evaluation.
        is_in_collective: Whether it is inside a collective that is on record.
        optimizing: The recording session in which it has begun the step of an optimizer that it is
            inside of; 0 outside of one.
        session: The recording session in which it has been let in; 0 before the first.
        root_ids: The numbers of the last root with parameters that it called, packed.
        spans: Spans of the script that it is inside of.
        passes: Backward passes that it is inside of.
        backward: The modules whose backward pass is under way in it, the outermost first.
        floor: How many of those belong to passes around the innermost one.
        fresh: How many of those have begun since one ended.
        backward_facts: As `facts`, of rows of the backward pass.
        collective_facts: The thread and what follows it in an opened row of a collective, packed:
            of one that is waited for at once, and of an asynchronous one.
    """

    __slots__ = (
        "_all_facts",
        "backward",
        "backward_facts",
        "collective_facts",
        "floor",
        "fresh",
        "is_agents",
        "is_apart",
        "is_evaluating",
        "is_in_collective",
        "native_id",
        "optimizing",
        "passes",
        "recomputing",
        "root",
        "root_ids",
        "session",
        "spans",
    )

    def __init__(self) -> None:
        self.is_agents = threading.current_thread().name.startswith(AGENT_THREAD_PREFIX)
        self.is_apart = self.is_in_collective = self.is_evaluating = False
        self.session = self.optimizing = 0
        self.depth = 0
        self.recomputing = False
        self.native_id = threading.get_native_id()
        self.root: Any = None
        self.root_ids = b""
        self.spans = 0
        self.passes = self.floor = self.fresh = 0
        self.backward: list[Any] = []
        self.backward_facts = _facts(self.native_id, BACKWARD, recomputing=False, training=True)
        self.collective_facts = tuple(
            _COLLECTIVE_FACTS.pack(
                self.native_id, is_async, NULL_NAME, NULL_INT, NULL_FLOAT, NULL_INT, NULL_INT
            )
            for is_async in (False, True)
        )
        self._all_facts: dict[tuple[bool, bool], list[bytes]] = {}
        self.enter(recomputing=False, training=True)

    def enter(self, *, recomputing: bool, training: bool) -> None:
        """A root is about to be called in this thread."""
        self.recomputing = recomputing
        key = (recomputing, training)
        if key not in self._all_facts:
            self._all_facts[key] = _facts(
                self.native_id, FORWARD, recomputing=recomputing, training=training
            )
        self.facts = self._all_facts[key]


class ThreadStates(threading.local):
    """The state of the thread that asks."""

    def __init__(self) -> None:
        self.state = ThreadState()


class Recording:
    """Everything a recorded source needs.

    Attributes:
        trace: The ring of python.torch_trace.
        rows: The rows of python.steps and python.micro_batches.
        now: What every module call reads: the step, and when memory is sampled next.
        threads: What each thread is in the middle of.
        model: The root module last trained or called, for `eval` to name.
        optimizer: The optimizer whose steps are counted.
        training_thread: The kernel number of the thread that last called a root module or
            stepped an optimizer; 0 before that.
        session: How often recording has begun or ended; a thread that has been let in since knows
            the number.
        roots: The modules that were called from outside of any other.
        models: What root modules are called.
        optimizer_names: What optimizers are called.
        optimizers: Those that have stepped.
        made: Those that exist, as far as they were met.
        inputs: The tensors that came in last.
        loss: What the last backward pass began with, without its scale: a weak reference to the
            tensor where it has none, and its number.
        observation: What watches the next call of each root, while somebody has asked for it.
        seen: What such a look has shown of each module, by ``id(module)``.
        before_step: Called in the training thread as an optimizer is about to step, with it and the
            arguments of its step; what it calls keeps its own faults.
        after_step: The same, as it has stepped.
        memory_look: What looks at the memory, from a step's end to the next backward pass.
        before_backward: Called in the training thread as a backward pass of the training's step is
            about to begin, with the arguments of the engine; what it calls keeps its own faults.
        clip: What the script has clipped last, with a norm over all of it.
        after_backward: Called as such a pass has ended, with the arguments of the engine and what
            it returned; what it calls keeps its own faults.
        numerics: What watches for values that are not finite, while it is armed.
        ooms: What records out-of-memory errors, while recording is on.
        collectives: What records collectives, while it does.
        held_lr: The rates that an action has optimizers step with, in the place of the script's, by
            ``id(optimizer)``.
        births: In which step storages came, once somebody has looked.
        surveyor: What makes surveys of old objects, once somebody has asked for one.
        spent_ns: What has been done a few times per step so far, by the clock of each that does it.
        awaits_step: Whether recording began in the middle of a training and waits for the end of
            the step in progress.
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
        self.model: weakref.ref[Any] | None = None
        self.optimizer: weakref.ref[Any] | None = None
        self.roots = Met()
        self.models = ModelNames()
        self.optimizer_names = optimizer_names()
        self.optimizers = Met()
        self.made = Met()
        self.inputs = Inputs()
        self.loss: tuple[weakref.ref[Any] | None, Number] | None = None
        self.observation: Any = None
        self.seen: dict[int, Any] = {}
        self.before_step: tuple[StepLook, ...] = ()
        self.after_step: tuple[StepLook, ...] = ()
        self.before_backward: tuple[Callable[[tuple[Any, ...]], None], ...] = ()
        self.clip: Clip | None = None
        self.after_backward: tuple[Callable[[tuple[Any, ...], Any], None], ...] = ()
        self.numerics: Any = None
        self.memory_look: Any = None
        self.ooms: Any = None
        self.collectives: Any = None
        self.held_lr: dict[int, float] = {}
        self.births: Any = None
        self.surveyor: Any = None
        self.training_thread = 0
        self.session = 0
        self.spent_ns = 0
        self.awaits_step = False

    @property
    def step(self) -> int:
        """The number of the step in progress, from 0."""
        return self.now.step

    @step.setter
    def step(self, number: int) -> None:
        self.now.step = number
