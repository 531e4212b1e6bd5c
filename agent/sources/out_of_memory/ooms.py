"""Records out-of-memory errors, before they reach the script.

Rules of this file: runs in the training threads, in handlers of exceptions that go on unchanged,
and in the allocator's callback. Without an error it costs nothing. There may be no memory for what
is done here: a reserve is let go first, and whatever fails is kept to itself.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import weakref

from ....safety.guard import Guard, pass_on
from ..accelerator import Accelerator
from ..calls.backward.module_backward import ModuleBackward
from ..calls.names.module_names import IDS, ModuleNames
from ..shared.recording import Recording
from ..shared.thread_state import ThreadState
from ..stand_in import PlainSource
from ..steps.phases import BACKWARD, FORWARD
from .errors import OomError, read_oom
from .place import NO_PLACE, Place, Sight, place_of, sight_of
from .rows import OomRings, OomRow, OomRows

_RESERVE_BYTES = 16 << 20
"""Address space for what is done here. It is mapped, not allocated: an allocator may clear what it
gives, and then it would take memory."""


class Ooms(PlainSource):
    """Writes python.ooms, python.oom_categories and python.oom_growth."""

    def __init__(
        self,
        recording: Recording,
        names: ModuleNames,
        backward: ModuleBackward,
        accelerator: Accelerator,
        rings: OomRings,
    ) -> None:
        self._recording = recording
        self._names = names
        self._backward = backward
        self._accelerator = accelerator
        self._rows = OomRows(recording, rings)
        self._reserve: mmap.mmap | None = None
        self._sight: Sight | None = None
        self._told_of: OomRow | None = None  # by the allocator; its exception has not come yet
        self._is_watching = False
        self._is_busy = False
        self.is_on = False
        self.guard = Guard("out of memory", self.stop)

    def start(self) -> None:
        """Record from now on."""
        self.is_on = True
        self._set_aside()
        self._recording.ooms = self

    def stop(self) -> None:
        """Record no more."""
        self.is_on = False
        self._let_go()
        self._recording.ooms = None

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        if not self._is_watching:
            return []
        return [
            "a function that torch's CUDA allocator calls when memory runs out, which torch cannot"
            " take away again: it does nothing."
        ]

    def step_began(self) -> None:
        """Have the allocator tell of errors, once the accelerator is in use."""
        if not self._is_watching:
            self.guard.run(self._watch)

    def raised(self, phase: int | None) -> None:
        """An exception is on its way; called in a handler of it, and never raises.

        Args:
            phase: The number of the phase that it ends; None where that is not known.
        """
        error = sys.exc_info()[1]
        if isinstance(error, RuntimeError | MemoryError | OSError):
            self.ended_by(error, phase)

    def ended_by(self, error: BaseException, phase: int | None = None) -> None:
        """The same of a given exception, or of one that led to it."""
        if self._is_busy or isinstance(error, RecursionError):
            return
        self._is_busy = True
        try:
            self._look_at(error, phase)
        except Exception:  # noqa: BLE001 - never harm the host
            pass_on()
            with contextlib.suppress(Exception):
                self.guard.fault()
        finally:
            self._is_busy = False

    def _watch(self) -> None:
        """Ask the accelerator to tell of errors."""
        reference = weakref.ref(self)

        def told(index: int, requested: int, total: int, free: int) -> None:
            ooms = reference()
            if ooms is not None and ooms.is_on:
                ooms.guard.run(ooms._allocator_told, index, requested, total, free)

        self._is_watching = self._accelerator.watch_out_of_memory(told)

    def _allocator_told(self, index: int, requested: int, total: int, free: int) -> None:
        """A device's allocator is about to raise an error, in this thread."""
        thread = self._recording.threads.state
        allocated, reserved = self._accelerator.allocator_bytes(index)
        found = OomError(
            is_host=False,
            text="",
            requested=requested,
            device_index=index,
            total=total,
            free=free,
            allocated=allocated,
            reserved=reserved,
        )
        # In a pass, other threads than this one may be at the tensors: they are looked at later.
        is_own = thread.native_id == self._recording.training_thread and not thread.passes
        phase = None if is_own else BACKWARD
        place = self._place_in_backward(thread) if phase == BACKWARD else NO_PLACE
        self._told_of = self._rows.write(found, thread, phase, place, looks=is_own)

    def _look_at(self, error: BaseException, phase: int | None) -> None:
        """Record an exception, if it is an out-of-memory error and has not been recorded yet."""
        found = read_oom(error)
        if found is None:
            return
        self._rows.spared_bytes = 0 if self._reserve is None else _RESERVE_BYTES
        self._let_go()
        sight = sight_of(error)
        if self._sight is None or not self._sight.is_before(sight):
            self._record(error, found, phase)
        self._sight = sight
        self._set_aside()

    def _set_aside(self) -> None:
        """Have a reserve, if there still is room for one."""
        with contextlib.suppress(MemoryError, OSError, ValueError):
            self._reserve = self._reserve or mmap.mmap(-1, _RESERVE_BYTES)

    def _let_go(self) -> None:
        """Give the reserve back."""
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.close()

    def _record(self, error: BaseException, found: OomError, phase: int | None) -> None:
        """Write the row of an exception, or complete that which the allocator has told of."""
        thread = self._recording.threads.state
        if thread.passes and phase == FORWARD:  # activations that are computed anew
            phase = BACKWARD
        place = place_of(error, self._names)
        if place.module is None and phase == BACKWARD:
            place = self._place_in_backward(thread)
        told, self._told_of = self._told_of, None
        if told is not None and not found.is_host and _is_same(found, told):
            self._rows.complete(told, found.text, place)
        else:
            self._rows.write(found, thread, phase, place, looks=True)

    def _place_in_backward(self, thread: ThreadState) -> Place:
        """The innermost module whose backward pass is under way."""
        ids = self._backward.innermost(thread)
        if ids is None:
            return NO_PLACE
        name, _, root = IDS.unpack(ids)
        return Place(name, root)


def _is_same(found: OomError, told: OomRow) -> bool:
    """Whether the size in a message, which is rounded, is that which the allocator told."""
    if found.requested is None:
        return True
    exact: int = told.values["requested_bytes"]
    return abs(found.requested - exact) <= max(found.requested, exact) // 100
