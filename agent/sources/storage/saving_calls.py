"""In which module's call autograd has saved a tensor.

Rules of this file: runs in the training thread, in hooks that are there while somebody looks. A
node of the autograd graph has a number, in the order in which its thread made them, so that the
numbers at the beginning and the end of each call tell whose node it is.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..numbers.nonfinite.finite_hooks import Watched
from .storages import Storage

_MOST_NOTES = 200_000
"""Two for each call; what is saved after so many of them is of no module that is known."""


class SavingCalls:
    """Notes between which nodes each module's call lies: a `Watcher`.

    Attributes:
        can_count: Whether this torch tells how far autograd has counted.
    """

    def __init__(self, thread: int) -> None:
        core = sys.modules["torch"]._C._autograd
        self._number: Any = getattr(core, "_get_sequence_nr", None)
        self.can_count = self._number is not None
        self._thread = thread
        self._numbers: list[int] = []
        self._modules: list[str | None] = []
        self._stack: list[Watched] = []

    def entered(
        self, watched: Watched, _args: tuple[object, ...], _kwargs: dict[str, object]
    ) -> None:
        """See `Watcher`."""
        if threading.get_ident() == self._thread:
            self._stack.append(watched)
            self._note()

    def left(
        self,
        watched: Watched,
        _args: tuple[object, ...],
        _kwargs: dict[str, object],
        _result: object,
    ) -> None:
        """See `Watcher`."""
        if threading.get_ident() == self._thread and watched in self._stack:
            while self._stack.pop() is not watched:
                pass  # a call inside it that ended by an exception
            self._note()

    def all_named(self, storages: Sequence[Storage]) -> tuple[Storage, ...]:
        """The same of many, of which few are activations."""
        return tuple([one if one.number is None else self.named(one) for one in storages])

    def named(self, storage: Storage) -> Storage:
        """An activation with the module in whose call it was saved."""
        if storage.number is None or storage.module is not None:
            return storage
        place = bisect_right(self._numbers, storage.number) - 1
        return storage if place < 0 else storage._replace(module=self._modules[place])

    def _note(self) -> None:
        """From the next node on, the innermost module is another one; of too many, none."""
        count = len(self._numbers)
        if count <= _MOST_NOTES:
            is_last = count == _MOST_NOTES
            self._numbers.append(self._number())
            self._modules.append(self._stack[-1].name if self._stack and not is_last else None)
