"""Waits for the first process group, and has collectives recorded from then on.

Rules of this file: cheap, for a process that never has a group. What records is imported, and its
rings are made, when there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....rundir.folders import ProcessFolder
from ..accelerator import Accelerator
from ..shared.recording import Recording
from ..stand_in import StandIn, StandInSource

if TYPE_CHECKING:
    from .call_memory import CallMemory
    from .source import CollectiveCalls

_MODULE = "torch.distributed.distributed_c10d"
_MADE_BY = ("_update_default_pg", "_new_group_with_tag", "split_group")


class Collectives(StandInSource):
    """The source `collectives`."""

    def __init__(
        self,
        recording: Recording,
        folder: ProcessFolder,
        rows: int,
        accelerator: Accelerator,
        memory: CallMemory,
    ) -> None:
        """Prepare.

        Args:
            rows: How many rows python.collectives is to hold.
        """
        self._memory = memory
        self._recording = recording
        self._folder = folder
        self._rows = rows
        self._accelerator = accelerator
        module = sys.modules.get(_MODULE)
        has_groups = module is not None and hasattr(module, "_world")
        makers = [StandIn(module, name, self._around, [self._begin]) for name in _MADE_BY]
        super().__init__("collectives", makers if has_groups else [], recording.events)
        self._calls: CollectiveCalls | None = None

    def start(self) -> None:
        """Record, or wait for the first group."""
        super().start()
        if self._methods and sys.modules[_MODULE]._world.pg_map:
            self.guard.run(self._begin)

    def stop(self) -> None:
        """Record no more."""
        super().stop()
        if self._calls is not None:
            self._calls.stop()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._calls is not None:
            self._calls.close()

    @property
    def has_kernels(self) -> bool:
        """Whether there is what must not go while the training is inside of it."""
        return self._calls is not None and self._calls.kernels.are_there

    def take_off(self, *, are_resting: bool) -> None:
        """Take away what `has_kernels` tells of, while it still records.

        Args:
            are_resting: Whether no other thread is inside a pass or a step, nor comes into one.
        """
        if self._calls is not None:
            self._calls.take_off(are_resting=are_resting)

    def time_by(self, timer: object) -> None:
        """Have collectives timed on the device from now on, or no more."""
        if self._calls is not None:
            self._calls.rows.is_timed = timer is not None

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        return super().remains() + ([] if self._calls is None else self._calls.remains())

    def note(self) -> str | None:
        """What `status` says of it beside its state."""
        if self._calls is None:
            return "no process group" if self._methods else None
        return self._calls.note()

    def _around(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """A group is made."""
        result = original(*args, **kwargs)
        self.guard.run(self._begin)
        return result

    def _begin(self) -> None:
        """There is a group: record, if that has not begun, and meet those that are new."""
        if self._calls is None:
            from .source import CollectiveCalls, make_rings

            rings = make_rings(self._folder, self._rows)
            self._calls = CollectiveCalls(
                self._recording, rings, self._accelerator, self._memory, self.guard
            )
        self._calls.start()
