"""What is done around a call of a group's method, and around a wait for its work.

Rules of this file: runs in the threads that call; a fault stays here.
"""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

from .....safety.guard import Guard
from ...shared.recording import Recording
from ...torch_types import ProcessGroup, Work
from ..entered import Call
from ..groups import Groups
from ..rows import CollectiveRows
from .operations import Operation

_WAITING = frozenset({"send", "recv"})


class GroupCall:
    """Around one method of ``ProcessGroup``."""

    def __init__(
        self,
        operation: Operation,
        recording: Recording,
        groups: Groups,
        rows: CollectiveRows,
        guard: Guard,
    ) -> None:
        self._operation = operation
        self._recording = recording
        self._groups = groups
        self._rows = rows
        self._guard = guard

    def begin(
        self, target: ProcessGroup, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> Call | None:
        """See `Around`."""
        thread = self._recording.threads.state
        if thread.is_in_collective:
            return None
        frame = None
        try:
            operation, group = self._operation, self._groups.of(target)
            options: Any = args[-1] if args else kwargs.get("opts")
            at = operation.tensors
            tensors = args[at] if at is not None and len(args) > at else None
            frame = sys._getframe(2)
            if operation.peer is not None:
                is_async = not _is_awaited(frame)
            else:
                is_async = bool(getattr(options, "asyncOp", False))
            call = self._rows.open(
                operation,
                group,
                tensors,
                frame,
                reduce_op=getattr(options, "reduceOp", None),
                root=options.rootRank if operation.root else None,
                peer=None if operation.peer is None else args[operation.peer],
                is_async=is_async,
            )
        except Exception:  # noqa: BLE001 - never harm the host
            self._guard.fault()
            return None
        finally:
            del frame
        thread.is_in_collective = True
        return call

    def ended(self, begun: Call, result: object) -> None:
        """See `Around`."""
        self._recording.threads.state.is_in_collective = False
        self._guard.run(self._rows.issued, begun, result)

    def failed(self, begun: Call, error: BaseException) -> None:
        """See `Around`."""
        self._recording.threads.state.is_in_collective = False
        self._guard.run(self._rows.failed, begun, error)


def _is_awaited(frame: FrameType | None) -> bool:
    """Whether the function that calls for a message waits for it: `recv` is `irecv` and a wait."""
    module = None if frame is None else frame.f_code.co_filename
    for _ in range(3):
        if frame is None:
            break
        if frame.f_code.co_name in _WAITING and frame.f_code.co_filename == module:
            return True
        frame = frame.f_back
    return False


class Coalescing:
    """Around the two methods between which a group's calls are only gathered.

    A backend that does so gives nothing for each of them, and one work for all at the end.
    """

    def __init__(self, rows: CollectiveRows, guard: Guard, *, begins: bool) -> None:
        self._rows = rows
        self._guard = guard
        self._begins = begins

    def begin(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """See `Around`."""
        return target

    def ended(self, begun: object, result: object) -> None:
        """See `Around`."""
        if self._begins:
            self._rows.gathered = []
        else:
            self._guard.run(self._rows.issue_gathered, result)

    def failed(self, begun: object, error: BaseException) -> None:
        """See `Around`."""
        self._guard.run(self._rows.fail_gathered, error)


class Aborting:
    """Around the method by which the program aborts a group.

    What its device was to do is over then as if it had been done, so that this is found out before.
    """

    def __init__(self, groups: Groups, rows: CollectiveRows, guard: Guard) -> None:
        self._groups = groups
        self._rows = rows
        self._guard = guard

    def begin(
        self, target: ProcessGroup, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """See `Around`."""
        try:
            return self._rows.stop_group(self._groups.of(target).name_id)
        except Exception:  # noqa: BLE001 - never harm the host
            self._guard.fault()
            return None

    def ended(self, begun: list[Call], result: object) -> None:
        """See `Around`."""
        self._guard.run(self._rows.aborted, begun)

    def failed(self, begun: list[Call], error: BaseException) -> None:
        """See `Around`; nobody waits for them any more."""
        self._guard.run(self._rows.aborted, begun)


class WorkWait:
    """Around the method by which the program waits for a work."""

    def __init__(self, recording: Recording, rows: CollectiveRows, guard: Guard) -> None:
        self._recording = recording
        self._rows = rows
        self._guard = guard

    def begin(
        self, target: Work, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Call, int, Work] | None:
        """See `Around`; of a work that was not recorded nothing is noted."""
        call = self._rows.under_way.pop(id(target), None)
        return None if call is None else (call, time.perf_counter_ns(), target)

    def ended(self, begun: tuple[Call, int, Work], result: object) -> None:
        """See `Around`."""
        self._guard.run(self._note, begun)

    def failed(self, begun: tuple[Call, int, Work], error: BaseException) -> None:
        """See `Around`."""
        call, start, _ = begun
        call.wait_ns = time.perf_counter_ns() - start
        self._guard.run(self._rows.failed, call, error)

    def _note(self, begun: tuple[Call, int, Work]) -> None:
        """It has been waited for."""
        call, start, work = begun
        now = time.perf_counter_ns()
        recording = self._recording
        if recording.threads.state.native_id == recording.training_thread:
            recording.rows.phases.synchronized(start, now)
        self._rows.waited(call, start, now, work)
