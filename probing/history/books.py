"""Which rows of a ring are in the history, and what became of the others.

Rules of this file: pure arithmetic on the numbers of rows. The books balance: written = exported +
overwritten + damaged + waiting, to the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..messages.frozen import dataclass

Numbers = npt.NDArray[np.int64]

_NONE: Numbers = np.empty(0, np.int64)


@dataclass(slots=True, kw_only=True)
class Books:
    """What is known of the rows of one table of one process.

    Attributes:
        number: How many files of rows there are.
        upto: All rows up to this number are exported or lost, but for `waiting`.
        rows: How many are exported.
        overwritten: How many made room for newer ones before they were exported.
        damaged: How many of an ended process could not be read.
        mark: The number of the newest exported row, and its time as the ring stores it: what tells
            a ring that was begun anew.
        waiting: The numbers of those not exported yet, ascending.
    """

    number: int = 0
    upto: int = 0
    rows: int = 0
    overwritten: int = 0
    damaged: int = 0
    mark: tuple[int, int] = (0, 0)
    waiting: Numbers = field(default_factory=lambda: _NONE)

    def see(self, *, written: int, overwritten: int) -> None:
        """Take in what a ring says of itself: its rows, and how many of them it no longer has."""
        gone = int(np.count_nonzero(self.waiting <= overwritten))
        gone += max(0, min(overwritten, written) - self.upto)
        self.overwritten += gone
        first = max(self.upto, overwritten) + 1
        kept = self.waiting[self.waiting > overwritten]
        self.waiting = np.concatenate([kept, np.arange(first, written + 1, dtype=np.int64)])
        self.upto = max(self.upto, written)

    def are_waiting(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Which rows are not exported yet."""
        found: npt.NDArray[np.bool_] = np.isin(numbers, self.waiting, assume_unique=True)
        return found

    def take(self, numbers: Numbers, times: Numbers) -> None:
        """Some rows go into the next file.

        Args:
            times: Their times as the ring stores them.
        """
        self.number += 1
        self.rows += len(numbers)
        self.waiting = np.setdiff1d(self.waiting, numbers, assume_unique=True)
        newest = int(np.argmax(numbers))
        if numbers[newest] > self.mark[0]:
            self.mark = (int(numbers[newest]), int(times[newest]))

    def begin_anew(self) -> None:
        """The ring is another one, which counts from 1; what was waiting is lost."""
        self.overwritten += len(self.waiting)
        self.upto, self.mark, self.waiting = 0, (0, 0), _NONE

    def give_up(self) -> None:
        """What is waiting now will never be readable."""
        self.damaged += len(self.waiting)
        self.waiting = _NONE

    def to_json(self) -> dict[str, Any]:
        """As it is written down."""
        return {
            "number": self.number,
            "upto": self.upto,
            "rows": self.rows,
            "overwritten": self.overwritten,
            "damaged": self.damaged,
            "mark": list(self.mark),
            "waiting": _ranges(self.waiting),
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Books:
        """As it was written down.

        Raises:
            KeyError, TypeError, ValueError: It was not.
        """
        seq, at = told["mark"]
        return cls(
            number=int(told["number"]),
            upto=int(told["upto"]),
            rows=int(told["rows"]),
            overwritten=int(told["overwritten"]),
            damaged=int(told["damaged"]),
            mark=(int(seq), int(at)),
            waiting=_numbers(told["waiting"]),
        )


def _ranges(numbers: Numbers) -> list[list[int]]:
    """Ascending numbers as first and last of those side by side."""
    if not len(numbers):
        return []
    ends = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.concatenate([[0], ends + 1])]
    lasts = numbers[np.concatenate([ends, [len(numbers) - 1]])]
    return [[int(first), int(last)] for first, last in zip(firsts, lasts, strict=True)]


def _numbers(ranges: Sequence[Sequence[int]]) -> Numbers:
    pieces = [np.arange(first, last + 1, dtype=np.int64) for first, last in ranges]
    return np.concatenate([_NONE, *pieces])
