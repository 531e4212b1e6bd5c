"""Objects of the training that were met, such as root modules and optimizers.

Rules of this file: runs in the training threads. Keeps nothing alive: an object that has died is
not taken for another one that has its identity now.
"""

from __future__ import annotations

import weakref
from typing import Any

_FEW = 16


class Met:
    """Remembers objects in the order in which they came, for as long as they live."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}
        self._most = _FEW

    def add(self, thing: object) -> None:
        """Remember an object; one that is known keeps its place."""
        known = self._references.get(id(thing))
        if known is None or known() is not thing:
            self._meet(id(thing), thing)

    def _meet(self, key: int, thing: object) -> None:
        """Remember what is new."""
        self._references.pop(key, None)
        self._references[key] = weakref.ref(thing)
        if len(self._references) > self._most:
            self._forget_dead()

    def alive(self) -> list[Any]:
        """Those that live, first come first."""
        found = [reference() for reference in list(self._references.values())]
        return [thing for thing in found if thing is not None]

    def _forget_dead(self) -> None:
        """Forget what lives no more; no callback does, for Python prints what fails in one."""
        for key, reference in self._references.copy().items():
            if reference() is None:
                self._references.pop(key, None)
        self._most = max(_FEW, 2 * len(self._references))

    def clear(self) -> None:
        """Forget all."""
        self._references.clear()
