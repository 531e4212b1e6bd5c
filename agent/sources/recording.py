"""What recorded sources share: the rings, the names, and who is who in the process.

Rules of this file: no hooks; state only. Runs in the training threads.
"""

from __future__ import annotations

import struct
import threading
import weakref
from typing import Any

from ...ring import NULL_INT
from ...tables import STAGES
from ..recorder import Names, RingWriter
from ..safe_points import AGENT_THREAD_PREFIX, SafePoints

MAX_DEPTH = 255
FORWARD = STAGES.index("forward")
_FACTS = struct.Struct("<IBBBBqq")


class _Facts(dict[int, bytes]):
    """What of an opened row depends on thread and depth alone, packed as it stands in the row."""

    def __init__(self, native_id: int, *, recomputing: bool, training: bool) -> None:
        super().__init__()
        self._make = (native_id, recomputing, training)

    def __missing__(self, depth: int) -> bytes:
        native_id, recomputing, training = self._make
        shown = min(depth, MAX_DEPTH)
        self[depth] = packed = _FACTS.pack(
            native_id, FORWARD, shown, recomputing, training, NULL_INT, NULL_INT
        )
        return packed


class ThreadState:
    """What one thread is in the middle of.

    Attributes:
        depth: Module calls it is inside of.
        recomputing: Whether it runs forward code inside a backward pass.
        root: The outermost module being called.
        facts: By depth: thread, stage, depth, both flags and no closing columns, packed.
        is_agents: Whether it is one of the agent's own threads, whose calls are no progress.
        session: The recording session in which it has been let in; 0 before the first.
    """

    __slots__ = (
        "_all_facts",
        "depth",
        "facts",
        "is_agents",
        "native_id",
        "recomputing",
        "root",
        "session",
    )

    def __init__(self) -> None:
        self.is_agents = threading.current_thread().name.startswith(AGENT_THREAD_PREFIX)
        self.session = 0
        self.depth = 0
        self.recomputing = False
        self.native_id = threading.get_native_id()
        self.root: Any = None
        self._all_facts: dict[tuple[bool, bool], _Facts] = {}
        self.enter(recomputing=False, training=True)

    def enter(self, *, recomputing: bool, training: bool) -> None:
        """A root is about to be called in this thread."""
        self.recomputing = recomputing
        key = (recomputing, training)
        if key not in self._all_facts:
            self._all_facts[key] = _Facts(
                self.native_id, recomputing=recomputing, training=training
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
        steps: The ring of python.steps.
        threads: What each thread is in the middle of.
        model: The root module last trained or called, for `eval` to name.
        optimizer: The optimizer whose steps are counted.
        training_thread: The kernel number of the thread that last called a root module or
            stepped an optimizer; 0 before that.
        session: How often recording has begun or ended; a thread that has been let in since knows
            the number.
        awaits_step: Whether recording began in the middle of a training and waits for the end of
            the step in progress.
    """

    def __init__(
        self, *, trace: RingWriter, steps: RingWriter, names: Names, safe_points: SafePoints
    ) -> None:
        self.trace = trace
        self.steps = steps
        self.names = names
        self.safe_points = safe_points
        self.threads = ThreadStates()
        self.model: weakref.ref[Any] | None = None
        self.optimizer: weakref.ref[Any] | None = None
        self.training_thread = 0
        self.session = 0
        self.awaits_step = False
