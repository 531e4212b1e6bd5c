"""What a reading of a ring gives: its rows in order, and what became of those that are not there.

Rules of this file: data only; nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .format import RingHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRows:
    """Rows in ascending order of their numbers, each column an array of its own.

    Attributes:
        numbers: The number of each row, counted from 1 since the process started.
        states: `ring.OPEN`, `ring.DONE` or `ring.FAILED`.
        columns: The columns that were read, as they are stored.
    """

    numbers: npt.NDArray[np.int64]
    states: npt.NDArray[np.uint8]
    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return self.columns[column]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSnapshot:
    """The readable rows of a ring, and what became of the others.

    The books balance: ``written == len(rows) + overwritten + torn``.

    Attributes:
        written: Rows written since the process started.
        overwritten: Rows that made room for newer ones.
        dropped: Rows that the writer could not write; they have no number.
        torn: Rows that are damaged, cut off, or never settled.
        is_cut: Whether the file is shorter than its header says.
    """

    header: RingHeader
    rows: RingRows
    written: int
    overwritten: int
    dropped: int
    torn: int
    is_cut: bool = False
