"""What each thread is in the middle of, and the facts of its rows, packed beforehand.

Rules of this file: state only; runs in the training threads, of which each sees its own.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

from ....ring.format import NULL_FLOAT, NULL_INT, NULL_NAME
from ....ring.native import Thread
from ....safety.this_thread import is_called
from ....tables import STAGES
from ...recording.safe_points import AGENT_THREAD_PREFIX

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


class ThreadState(Thread):
    """What one thread is in the middle of.

    Attributes:
        entered: Whether the last root that was called in it was recomputed, and in training mode.
        root: The outermost module being called.
        fetches: How many batches of DataLoaders it is in the middle of making, or waits for, each
            within another one: what it calls there is no part of the training itself.
        is_agents: Whether it is one of the agent's own threads, whose calls are no progress.
        is_apart: Whether it works on a copy of the model, and is to leave no record.
        is_evaluating: Whether it is inside a call of a root that is evaluation.
        is_in_collective: Whether it is inside a collective that is on record.
        optimizing: The recording session in which it has begun the step of an optimizer that it is
            inside of; 0 outside of one.
        session: The recording session in which it has been let in; 0 before the first.
        root_ids: The numbers of the last root with parameters that it called, packed.
        task: autograd's number of the pass around it, as of when it has looked for new ones; -1
            outside of one.
        backward: The modules whose backward pass is under way in it, the outermost first; C keeps
            those of its own.
        fresh: How many of those have begun since one ended.
        collective_facts: The thread and what follows it in an opened row of a collective, packed:
            of one that is waited for at once, and of an asynchronous one.
    """

    __slots__ = (
        "_all_facts",
        "backward",
        "collective_facts",
        "entered",
        "fetches",
        "fresh",
        "is_agents",
        "is_apart",
        "is_evaluating",
        "is_in_collective",
        "native_id",
        "optimizing",
        "root",
        "root_ids",
        "session",
        "task",
    )

    def __init__(self) -> None:
        self.is_agents = is_called(AGENT_THREAD_PREFIX)
        self.is_apart = self.is_in_collective = self.is_evaluating = False
        self.session = self.optimizing = self.fetches = 0
        self.depth = 0
        self.recomputing = False
        self.native_id = threading.get_native_id()
        self.root: Any = None
        self.root_ids = b""
        self.passes = self.floor = self.fresh = self.seen_passes = self.first_new = 0
        self.task = -1
        self.backward: list[Any] = []
        self.backward_facts = _facts(self.native_id, BACKWARD, recomputing=False, training=True)
        self.collective_facts = tuple(
            [
                _COLLECTIVE_FACTS.pack(
                    self.native_id, is_async, NULL_NAME, NULL_INT, NULL_FLOAT, NULL_INT, NULL_INT
                )
                for is_async in (False, True)
            ]
        )
        self._all_facts: dict[tuple[bool, bool], list[bytes]] = {}
        self.enter(recomputing=False, training=True)

    def enter(self, *, recomputing: bool, training: bool) -> None:
        """A root is about to be called in this thread, in another way than the last."""
        self.recomputing = recomputing
        key = self.entered = (recomputing, training)
        if key not in self._all_facts:
            self._all_facts[key] = _facts(
                self.native_id, FORWARD, recomputing=recomputing, training=training
            )
        self.facts = self._all_facts[key]


class ThreadStates(threading.local):
    """The state of the thread that asks."""

    def __init__(self) -> None:
        self.state = ThreadState()
