"""Records collectives, messages between ranks and process groups.

Rules of this file: nothing of it is imported and no ring is made before the process has a group.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from ....ring.writer import RingWriter
from ....safety.guard import Guard
from ....tables import COLLECTIVES, PROCESS_GROUPS
from ..accelerator import Accelerator
from ..shared.recording import Recording
from ..stand_in import PlainSource, StandIn
from ..torch_types import Optimizer
from .call_memory import CallMemory
from .catching.calls import Aborting, Coalescing, GroupCall, WorkWait
from .catching.hot_path import HotPath
from .catching.kernels import Kernels
from .catching.methods import MethodStandIn
from .catching.operations import OPERATIONS
from .groups import Groups
from .rows import CollectiveRows


class CollectiveCalls(PlainSource):
    """All that stands in for something of torch's, once there are groups."""

    def __init__(
        self,
        recording: Recording,
        rings: tuple[RingWriter, RingWriter],
        accelerator: Accelerator,
        memory: CallMemory,
        guard: Guard,
    ) -> None:
        self._recording = recording
        self._rings = rings
        self._guard = guard
        self._misses = False
        collectives, groups = rings
        self.groups = Groups(groups, recording.names, guard)
        self.rows = rows = CollectiveRows(recording, collectives, accelerator, memory)
        self.kernels = Kernels(recording, self.groups, rows, guard)
        wrapper = sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel
        reducer = StandIn(wrapper, "_ddp_init_helper", self._with_reducer)
        self._methods = [*self._stand_ins(recording), reducer]

    def _stand_ins(self, recording: Recording) -> list[StandIn]:
        """What stands in for the methods of groups and of works."""
        rows, guard = self.rows, self._guard
        c10d: Any = sys.modules["torch._C._distributed_c10d"]
        helpers: list[Any] = [
            CollectiveRows.open,
            CollectiveRows.issued,
            CollectiveRows.failed,
            Groups.of,
        ]
        hot = HotPath(recording, self.groups, rows, guard)
        helpers += hot.helpers()
        methods: list[StandIn] = [
            MethodStandIn(
                c10d.ProcessGroup,
                operation.method,
                GroupCall(operation, recording, self.groups, rows, guard),
                helpers,
                hot.maker_for(operation),
            )
            for operation in OPERATIONS
        ]
        methods += [
            MethodStandIn(c10d.ProcessGroup, name, Coalescing(rows, guard, begins=begins))
            for name, begins in (("_start_coalescing", True), ("_end_coalescing", False))
        ]
        aborting = Aborting(self.groups, rows, guard)
        methods.append(MethodStandIn(c10d.ProcessGroup, "abort", aborting))
        waits = WorkWait(recording, rows, guard)
        helpers = [CollectiveRows.waited, *hot.helpers()]
        methods.append(MethodStandIn(c10d.Work, "wait", waits, helpers, hot.make_wait))
        return methods

    def start(self) -> None:
        """Record from now on, and meet the groups that are new."""
        self.groups.meet_all()
        if self._recording.collectives is self:
            return
        self.groups.count_anew()
        for method in self._methods:
            method.start()
        self.kernels.watch()
        self._recording.collectives = self
        self._recording.events.after_step += (self._after_step,)

    def stop(self) -> None:
        """Record no more."""
        super().stop()
        self.kernels.stop()
        recording = self._recording
        recording.collectives = None
        recording.events.forget(self._after_step)
        self.rows.forget()

    def take_off(self, *, are_resting: bool) -> None:
        """Take the kernels away, as far as the threads of the training let that be done."""
        self.kernels.close(is_resting=are_resting)

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        return super().remains() + self.kernels.remains()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self.kernels.close()
        for ring in self._rings:
            ring.close()

    def note(self) -> str:
        """What `status` says of it beside its state."""
        if self._misses:
            return (
                "there are collectives that are not seen, such as those of a backend's own"
                " methods: python.flight_recorder has them"
            )
        if self.kernels.is_on:
            return "calls from C++, such as those of DistributedDataParallel, are recorded, too"
        return "none is called from C++, as far as is known"

    def pass_ended(self, start_ns: int, now_ns: int) -> None:
        """A backward pass of the training's step has ended; see `Kernels`."""
        self._guard.run(self._note_pass, start_ns, now_ns)

    def _note_pass(self, start_ns: int, now_ns: int) -> None:
        """What it has waited for since the reducer's last call is the gradients' exchange."""
        if self.kernels.issued_ns > start_ns:
            self._recording.rows.phases.synchronized(self.kernels.issued_ns, now_ns)
        self.rows.poll(now_ns)

    def _with_reducer(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """A DistributedDataParallel is made, whose reducer calls from C++."""
        self._guard.run(self.kernels.start)
        result = original(*args, **kwargs)
        self._guard.run(self._note_wrapper, *args[:1])
        return result

    def _note_wrapper(self, wrapper: Any) -> None:
        """Remember which module has one, if there are ranks to average with."""
        if wrapper.process_group.size() > 1:
            wrapped = self._recording.objects.wrapped
            wrapped[:] = [each for each in wrapped if each[1]() is not None]
            wrapped.append((weakref.ref(wrapper), weakref.ref(wrapper.module)))

    def _after_step(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer has stepped."""
        self._guard.run(self._look)

    def _look(self) -> None:
        """See what has ended meanwhile, and whether somebody calls from C++."""
        self.rows.poll(time.perf_counter_ns())
        unseen = [group for group in self.groups.all() if group.has_unseen()]
        if unseen:
            was_on = self.kernels.is_on
            self.kernels.start()
            self._misses = was_on or not self.kernels.is_on  # not where they can never be
            if not self._misses:
                self.groups.count_anew()


def make_rings(folder: Any, rows: int) -> tuple[RingWriter, RingWriter]:
    """The rings of both tables.

    Raises:
        RingError: There is no space for them.
    """
    return (
        RingWriter(folder.ring(COLLECTIVES.name), COLLECTIVES, rows),
        RingWriter(folder.ring(PROCESS_GROUPS.name), PROCESS_GROUPS, _GROUP_ROWS),
    )


_GROUP_ROWS = 1024
