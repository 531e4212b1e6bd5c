"""Rows that are complete but for numbers which are still on their way from a device.

Rules of this file: a row is completed at once with what is known, and once more when the rest has
come; nobody waits for it. Whether a number has come is a question to the driver: a step that ends
asks for the oldest, and for no other until that is here. Several threads may write and ask at once:
a row is completed by the one that takes it. A row that can wait no longer is counted as dropped.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .....ring.format import DONE, NULL_FLOAT
from .....ring.writer import RingWriter
from ...numbers.number import Missed, Number, known_of

_LONGEST_QUEUE = 2048
"""Some 2 MB, of a training of which the device is hundreds of steps behind. The newest are dropped:
those that wait will be told first."""
_MOST_AT_ONCE = 256
"""How many rows are completed in one go, so that a step ends soon."""
_LONG_QUEUE = 16
"""With so many rows waiting, as those of many micro-batches, the oldest is asked for before a step
ends."""


class Later(Protocol):
    """What may not be known yet as its row is written."""

    def read(self) -> Any:
        """What it is; None while that is not known, which is asked without waiting."""


def put(number: Later, place: int, closing: list[Any], later: list[tuple[int, Later]]) -> None:
    """Fill in a number that is here, as those of the CPU are; others are to come later."""
    here = number.here if type(number) is Number else None
    if here is None:
        later.append((place, number))
    else:
        closing[place] = here


class _LateRow(NamedTuple):
    """A row that is complete but for numbers that are not here yet."""

    ring: RingWriter
    word: int
    closing: list[Any]
    later: Sequence[tuple[int, Later]]
    state: int

    def is_here(self) -> bool:
        """Whether all of them have come."""
        return all(number.read() is not None for _, number in self.later)


class LateRows:
    """The rows that wait.

    Attributes:
        waiting: They, the oldest first.
    """

    def __init__(self) -> None:
        self.waiting: deque[_LateRow] = deque()
        self._pid = os.getpid()

    def write(
        self,
        ring: RingWriter,
        word: int,
        closing: list[object],
        later: Sequence[tuple[int, Later]],
        state: int = DONE,
    ) -> None:
        """Complete a row; once more later on, if that will add something.

        Args:
            closing: The closing columns in the order of the layout; the list is kept and changed.
            later: Those that may not be known yet, by their places in that order; NULL until then.
            state: How it ended.
        """
        are_here, is_missed = True, False
        for place, number in later:
            value = known_of(number)
            if value is None:
                are_here = False
            else:
                closing[place] = value
                is_missed = is_missed or (value is NULL_FLOAT and type(number) is Missed)
        ring.close_row(word, state, *closing)
        if are_here or not ring.still_holds(word):
            if is_missed:
                ring.count_dropped()
            return
        if len(self.waiting) >= _LONG_QUEUE:
            self.flush()
        if len(self.waiting) < _LONGEST_QUEUE:
            self.waiting.append(_LateRow(ring, word, closing, later, state))
        else:
            ring.count_dropped()

    def flush(self) -> None:
        """Complete what has been waiting for its numbers, in order."""
        for _ in range(_MOST_AT_ONCE):
            try:
                oldest = self.waiting[0]
            except IndexError:  # there is none, or another thread has taken it
                return
            # One that has been overwritten meanwhile holds up no others.
            if not oldest.is_here() and oldest.ring.still_holds(oldest.word):
                return
            try:
                row = self.waiting.popleft()  # which may be the next one by now
            except IndexError:
                return
            self.write(*row)

    def end(self) -> None:
        """Complete what can be, for the last time; in a forked child, leave the parent's alone."""
        if os.getpid() != self._pid:
            self.waiting.clear()
        left = len(self.waiting) + 1
        while self.waiting and len(self.waiting) < left:
            left = len(self.waiting)
            self.flush()
        while self.waiting:
            self.waiting.popleft().ring.count_dropped()
