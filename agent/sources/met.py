"""Objects of the training that were met, such as root modules and optimizers.

Rules of this file: runs in the training threads. Keeps nothing alive: an object that dies is
forgotten before its identity can be another's.
"""

from __future__ import annotations

import weakref
from typing import Any


class Met:
    """Remembers objects in the order in which they came, for as long as they live."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, thing: Any) -> None:
        """Remember an object; one that is known keeps its place."""
        key = id(thing)
        if key not in self._references:
            forget = self._references.pop
            self._references[key] = weakref.ref(thing, lambda _: forget(key, None))

    def alive(self) -> list[Any]:
        """Those that live, first come first."""
        found = [reference() for reference in list(self._references.values())]
        return [thing for thing in found if thing is not None]

    def clear(self) -> None:
        """Forget all."""
        self._references.clear()
