"""Tells which nodes may be hooked: those that no backward pass under way can come to.

The engine goes through the hooks of a node without a lock, and in the midst of them it waits for
the interpreter's. One that is added meanwhile can have them all moved to another place in memory;
the engine reads on where they were, which ends the process. A pass comes to nodes only that were
there when it began, so while any is under way, those alone are hooked that were made since.

Rules of this file: runs in any thread that calls modules. Each thread numbers its nodes by itself,
from 0 on: a number says when a node was made only where the calling thread has made it. So one that
the thread was given counts as old beside a pass of another thread; of the pass around the thread
torch itself says what it comes to. Where calls are recorded in C, `_backward.c` decides the same.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

from .....safety.other_stacks import undisturbed
from ...shared.recording import Recording
from ...shared.thread_state import ThreadState
from .graph_nodes import sequence_nr
from .hooked import Hook

_PASSES = operator.attrgetter("passes")


class Ends(NamedTuple):
    """The nodes at which the backward of a module begins, and that at which it ends.

    Attributes:
        inputs: What it was given.
        last: That of them which the pass comes to last; None where no hook is needed there.
    """

    outputs: list[Any]
    inputs: list[Any]
    last: Any


class NewNodes:
    """Knows what each thread has made since a pass has begun.

    Attributes:
        newest: Returns the number that the calling thread's next node will have.
        is_walked: Says of a node whether the pass around the calling thread comes to it.
    """

    def __init__(self, recording: Recording) -> None:
        torch: Any = sys.modules["torch"]
        self._recording = recording
        # Of a torch without the one no node is new, of one without the other none in a pass.
        self.newest: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", int)
        self.is_walked: Callable[[Any], bool] = getattr(
            torch._C, "_will_engine_execute_node", lambda _: True
        )

    def look(self, thread: ThreadState) -> None:
        """What the calling thread has made so far is old."""
        thread.seen_passes = self._recording.now.passes
        thread.first_new = self.newest()

    def root_called(self, thread: ThreadState, task: int) -> None:
        """A root is called in a pass, or while there is one.

        Args:
            task: autograd's number of the pass around it, also of one that has not come our way;
                -1 outside of any.
        """
        recording = self._recording
        is_known = task == thread.task or thread.native_id in recording.passing
        if not is_known or thread.seen_passes != recording.now.passes:
            thread.task = task
            self.look(thread)

    def chosen(self, thread: ThreadState, ends: Ends, passes: int) -> Ends:
        """Those of some nodes that may be hooked.

        Args:
            passes: The moment's, from before this was asked.
        """
        if not (thread.recomputing or self._recording.passing):
            return ends
        if thread.seen_passes != passes:  # one has begun in the midst of this call
            self.look(thread)
            return Ends([], [], None)
        until, is_inside = self.newest(), thread.recomputing
        outputs = [
            node
            for node in ends.outputs
            if (is_inside or node not in ends.inputs) and self._is_new(thread, node, until)
        ]
        has_last = is_inside and ends.last is not None and self._is_new(thread, ends.last, until)
        return Ends(outputs, ends.inputs, ends.last if has_last else None)

    def _is_new(self, thread: ThreadState, node: Any, until: int) -> bool:
        """Whether no pass can come to a node."""
        if not thread.first_new <= sequence_nr(node) < until:
            return False
        try:
            return not (thread.recomputing and self.is_walked(node))
        except RuntimeError:  # torch cannot tell
            return False

    def hand_over(
        self, carrier: Any, hooks: dict[int, Hook], nodes: Sequence[Any], passes: int
    ) -> bool:
        """Have nodes call hooks, unless a pass has begun meanwhile; whether they all do.

        It is one call of C code, so that none begins in the midst of it.

        Args:
            carrier: That by which hooks are handed to nodes.
            passes: The moment's, from before the nodes were chosen.
        """
        carrier._backward_hooks = hooks
        is_still = map(passes.__eq__, map(_PASSES, repeat(self._recording.now)))
        register = operator.methodcaller("_register_hook_dict", carrier)
        return len(undisturbed(map(register, compress(nodes, is_still)))) == len(nodes)
