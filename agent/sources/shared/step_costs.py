"""What recording costs a step beside its module calls, by source.

Rules of this file: runs in the training threads; state only. A clock of the processor tells it:
that other programs have the core meanwhile is no cost of ours, and on a busy machine is many times
what is. That clock is dear, so it runs in some steps only. What is done in few steps, or beside
them, counts for itself, all the time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_TIMED = ("modules", "backward", "optimizers", "dataloaders", "marks", "gradient norms",
          "checkpoints")  # fmt: skip
_COUNTED = ("memory", "stack samples")
_FIRST = 8
"""So many steps are all timed."""
_EVERY = 8
"""Of those that follow, one in so many."""
_READ_AFTER = 2
"""So many steps after that is known which step it is: it is begun, over, and read."""
_READINGS = 9

_no_clock: Callable[[], int] = int
"""Stands still, and takes next to no time itself."""


class Usual:
    """The median of the last few figures."""

    __slots__ = ("_last", "add")

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_READINGS)
        self.add = self._last.append

    @property
    def value(self) -> float:
        """It; 0.0 before the first."""
        last = self._last
        return sorted(last)[len(last) // 2] if last else 0.0


class StepCosts:
    """The costs of the sources.

    Who does something reads `clock` once, and calls what it has read before and after.

    Attributes:
        clock: Of the thread's processor time in steps that are timed; stands still in others.
        step_ns: What each source costs a step; what is not known yet is not in it.
        total_ns: What all of them cost a step.
    """

    def __init__(self, processor_clock: Callable[[], int] = time.thread_time_ns) -> None:
        """Begin with a step that is timed."""
        self._processor_clock = processor_clock
        self.clock = processor_clock
        self.step_ns: dict[str, float] = {}
        self.total_ns = 0.0
        self._spent = dict.fromkeys((*_TIMED, *_COUNTED), 0)
        self._read = dict(self._spent)
        self._usual = {name: Usual() for name in _TIMED}
        self._counted: deque[tuple[int, list[int]]] = deque([(0, [0] * len(_COUNTED))], _READINGS)
        self._inner_ns = 0
        self._steps, self._timed = 0, 1
        self._next = 0  # the step at whose end there is something to do

    def add(self, source: str, took_ns: int) -> None:
        """A source has taken so long, by `clock`, what was counted within it included."""
        inner, self._inner_ns = self._inner_ns, 0
        self._spent[source] += max(0, took_ns - inner)

    def count(self, source: str, took_ns: int, *, is_within: bool) -> None:
        """A source that counts for itself has taken so long.

        Args:
            is_within: Whether that was within what another source adds.
        """
        self._spent[source] += took_ns
        if is_within:
            self._inner_ns += took_ns

    def step_ended(self) -> None:
        """A step has ended: what was timed is read, a step later where not all of them are."""
        steps = self._steps = self._steps + 1
        if steps < self._next:
            return
        if self._timed and (steps <= _FIRST or self.clock is _no_clock):
            self._read_all()
        since = steps % _EVERY
        is_timed = steps < _FIRST or since == 0
        self.clock = self._processor_clock if is_timed else _no_clock
        self._timed += is_timed
        is_amid = steps < _FIRST or since < _READ_AFTER
        self._next = steps + (1 if is_amid else _EVERY - since)

    def _read_all(self) -> None:
        """See what has been added up since the last time."""
        for name in _TIMED:
            spent, usual = self._spent[name], self._usual[name]
            if spent:
                usual.add((spent - self._read[name]) / self._timed)
                self._read[name], self.step_ns[name] = spent, usual.value
        self._timed = 0
        self._counted.append((self._steps, [self._spent[name] for name in _COUNTED]))
        (before, then), (steps, now) = self._counted[0], self._counted[-1]
        for name, first, last in zip(_COUNTED, then, now, strict=True):
            if last:
                self.step_ns[name] = (last - first) / (steps - before)
        self.total_ns = sum(self.step_ns.values())
