"""What the training thread spends a step on: the clock of its phases.

Rules of this file: no torch, no hook, no ring, no clock of its own; used by the training thread
only, a few times per micro-batch. Every moment of a step belongs to one phase: to that which is
entered and not yet left, or, between two of them, to that which `_GAPS` gives to the pair. The C
part has the same clock; what is meant is said here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ....tables import STEP_PHASES

DATA, TO_DEVICE, FORWARD, LOSS, BACKWARD, GRADIENTS, OPTIMIZER, OTHER, GRADIENT_SYNC = range(9)
PHASES = (*STEP_PHASES, "gradient_sync")
"""Their names, by number."""
_GAPS = {
    (DATA, FORWARD): TO_DEVICE,
    (FORWARD, FORWARD): LOSS,
    (FORWARD, BACKWARD): LOSS,
    (BACKWARD, OPTIMIZER): GRADIENTS,
    (OPTIMIZER, OPTIMIZER): GRADIENTS,
}
_SYNCHRONIZED = frozenset({BACKWARD, GRADIENTS})
_BATCH_BEGINS = frozenset({DATA, FORWARD})
_BATCH_ENDS = frozenset({DATA, FORWARD, OPTIMIZER})
"""What comes after a backward pass, and is no longer of its micro-batch."""
_IN_OPTIMIZER = [OPTIMIZER]


_NS = 1e-9


class PhaseWatch(Protocol):
    """Is told of phases that are not within others; an optimizer's step counts for none."""

    def entered(self, phase: int) -> None:
        """One begins."""

    def left(self, phase: int) -> None:
        """It has ended."""


class Phases:
    """Adds up what each phase of a step has taken.

    Attributes:
        spent_ns: By number of the phase, since the step began.
        batch_began: Called with the time when the first phase of a micro-batch begins.
        batch_ended: Called with the time when the last of them has ended.
        is_on: Whether a step is being measured: from `begin` to `end`.
        watch: Is told of the outermost phases.
    """

    def __init__(
        self, batch_began: Callable[[int], None], batch_ended: Callable[[int], None]
    ) -> None:
        self.spent_ns = [0] * len(PHASES)
        self.batch_began = batch_began
        self.batch_ended = batch_ended
        self.is_on = False
        self.watch: PhaseWatch | None = None
        self._inside: list[int] = []
        self._last = OTHER
        self._since_ns = 0
        self._sync_ns = 0
        self._in_batch = False
        self._had_backward = False

    def begin(self, now_ns: int) -> None:
        """A step begins."""
        self.spent_ns = [0] * len(PHASES)
        self.is_on, self._inside, self._last = True, [], OTHER
        self._since_ns = now_ns
        self._sync_ns = 0
        self._in_batch = self._had_backward = False

    def end(self, now_ns: int) -> None:
        """The step has ended: what is not of its last micro-batch stands in `spent_ns` then."""
        self._end_batch()
        self._pass(OTHER if not self._inside else self._inside[-1], now_ns)
        self.is_on = False

    def resume(self, *, in_batch: bool) -> None:
        """The step that has ended last goes on, right behind a forward pass."""
        self.is_on, self._inside, self._last = True, [], FORWARD
        self._in_batch, self._had_backward = in_batch, False

    def enter(self, phase: int, now_ns: int) -> None:
        """A phase begins, perhaps within another one."""
        if not self.is_on:
            return
        may_divide = self._may_divide()
        self._come_to(phase, now_ns, may_divide=may_divide)
        if self.watch is not None and may_divide:
            self.watch.entered(phase)
        if phase == OPTIMIZER:  # what it calls comes behind nothing
            self._last = OPTIMIZER
        self._inside.append(phase)

    def leave(self, now_ns: int, *, trains: bool = True) -> None:
        """The phase that was entered last has ended.

        Args:
            trains: Whether a backward pass was one to train by: what makes a part of a loss, such
                as a penalty on gradients, ends no micro-batch.
        """
        inside = self._inside
        if not (self.is_on and inside):
            return
        phase = inside.pop()
        may_divide = self._may_divide()
        if phase == OPTIMIZER and self._had_backward:  # it has called the model
            self._end_batch()
        self._pass(phase, now_ns)
        self._had_backward |= trains and phase == BACKWARD and self._in_batch and may_divide
        if may_divide:
            self._last = phase
        if self.watch is not None and may_divide:
            self.watch.left(phase)

    def ensure_batch(self, now_ns: int) -> None:
        """A micro-batch is in progress from now on at the latest: a backward pass has a loss."""
        if self.is_on and not self._in_batch and self._may_divide():
            self._in_batch = True
            self.batch_began(now_ns)

    def end_batch(self) -> None:
        """The micro-batch in progress, if any, ended with what was left last."""
        self._end_batch()

    def data_waited(self, start_ns: int, took_ns: int, has_batch: bool = True) -> None:  # noqa: FBT001, FBT002 - as in C
        """A batch has been waited for, which is known only now.

        Args:
            has_batch: Whether it came; a loader that is at its end begins no micro-batch.
        """
        if self.is_on and not self._inside:
            begun = max(start_ns, self._since_ns)
            self._come_to(DATA, begun, may_divide=True, begins=has_batch)
            self._pass(DATA, start_ns + took_ns)
            if has_batch:
                self._last = DATA
            elif self._last != BACKWARD:
                self._last = OTHER

    def synchronized(self, start_ns: int, now_ns: int) -> None:
        """Other ranks have been waited for, which is known only now.

        It counts where gradients are exchanged: in a backward pass, and from there to the
        optimizer.
        """
        now = self._inside[-1] if self._inside else self._last
        if self.is_on and now == BACKWARD:
            self._sync_ns += max(0, now_ns - max(start_ns, self._since_ns + self._sync_ns))

    def fill_seconds(
        self,
        closing: list[Any],
        places: tuple[tuple[int, int], ...],
        before: list[int] | None = None,
    ) -> None:
        """Fill in the columns of the phases that there were; NULL stays for the others.

        Args:
            closing: The closing columns of a row.
            places: Numbers of phases, each with the place of its column.
            before: What had been spent on each before that which the row is of.
        """
        for phase, place in places:
            spent_ns = self.spent_ns[phase] - (before[phase] if before else 0)
            if spent_ns:
                closing[place] = spent_ns * _NS

    def now(self) -> int:
        """What is being done now, as far as that can be told before it is over."""
        if self.is_on and self._in_batch and self._last == FORWARD and self._may_divide():
            return LOSS
        if self._inside:
            return self._inside[-1]
        return DATA if self.is_on and self._last == DATA else OTHER

    def _may_divide(self) -> bool:
        """Whether micro-batches may begin and end here.

        They may in no phase, and in the step of an optimizer, for some call the model.
        """
        return not self._inside or self._inside == _IN_OPTIMIZER

    def _come_to(self, phase: int, now_ns: int, *, may_divide: bool, begins: bool = True) -> None:
        """A phase begins: what was before it is over.

        Args:
            may_divide: Whether micro-batches may begin and end here.
            begins: Whether one may begin.
        """
        if may_divide and self._had_backward and phase in _BATCH_ENDS:
            self._end_batch()
        self._pass(self._before(phase), now_ns)
        if may_divide and begins and not self._in_batch and phase in _BATCH_BEGINS:
            self._in_batch = True
            self.batch_began(now_ns)

    def _before(self, phase: int) -> int:
        """What was done until a phase begins: also a closure has a loss between its passes."""
        gap = _GAPS.get((self._last, phase), OTHER)
        if not self._inside:
            return gap
        return LOSS if gap == LOSS and self._inside == _IN_OPTIMIZER else self._inside[-1]

    def _end_batch(self) -> None:
        """The micro-batch ended with the last backward pass."""
        if self._in_batch:
            self._in_batch = self._had_backward = False
            self.batch_ended(self._since_ns)

    def _pass(self, phase: int, now_ns: int) -> None:
        """The time until now was spent on one phase, but for what other ranks were waited for."""
        waited_ns, self._sync_ns = self._sync_ns, 0
        if phase in _SYNCHRONIZED:
            self.spent_ns[GRADIENT_SYNC] += waited_ns
            self.spent_ns[phase] -= waited_ns
        self.spent_ns[phase] += now_ns - self._since_ns
        self._since_ns = now_ns
