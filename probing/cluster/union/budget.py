"""How much may be moved from the ranks to where their rows meet.

Rules of this file: an estimate is taken before rows are moved, and replaced by what has really
come. Used by the threads that ask, all at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

from .statements.leaves import Leaf

_WIDTHS = {"int64": 8, "time": 8, "float64": 8, "bool": 1, "enum": 16, "text": 24}
_LEAST_WIDTH = 1
DEFAULT_BUDGET_MIB = 256


def width_of(leaf: Leaf) -> int:
    """About how many bytes a row of a leaf takes; a text is taken for a short one."""
    types = {column.name: column.type for column in leaf.table.columns}
    return sum(_WIDTHS[types[name]] for name in leaf.columns) or _LEAST_WIDTH


class Budget:
    """The bytes that all ranks may send together.

    Attributes:
        limit: In bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._taken: dict[Hashable, tuple[int, int]] = {}
        self._refused: dict[Hashable, tuple[int, int]] = {}
        self._sum = 0

    def take(self, who: Hashable, *, size: int, rows: int) -> bool:
        """Ask for room; what was taken by the same before is given back."""
        with self._lock:
            self._sum -= self._taken.pop(who, (0, 0))[0]
            self._refused.pop(who, None)
            if self._sum + size > self.limit:
                self._refused[who] = (size, rows)
                return False
            self._taken[who] = (size, rows)
            self._sum += size
            return True

    @property
    def is_exceeded(self) -> bool:
        """Whether all together want more than there is."""
        return self.estimate > self.limit

    @property
    def estimate(self) -> int:
        """The bytes that all together take or want."""
        with self._lock:
            return self._sum + sum(size for size, _ in self._refused.values())

    @property
    def rows(self) -> int:
        """Their rows."""
        with self._lock:
            return sum(rows for _, rows in [*self._taken.values(), *self._refused.values()])
