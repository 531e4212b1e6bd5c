"""Remembers what was found by looking through all objects of the process, for a while.

Rules of this file: keeps nothing alive. A search takes some tenths of a second, in which the
training competes with it for the interpreter lock; so actions behind each other share one.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ...torch_types import Optimizer

_KEPT_S = 60.0


class _Search(NamedTuple):
    """What was found, for which optimizer, and when."""

    optimizer: weakref.ref[Any]
    found: tuple[weakref.ref[Any], ...]
    when: float


class Searches:
    """The last searches of an agent."""

    def __init__(self) -> None:
        self._done: dict[str, _Search] = {}

    def find(self, what: str, optimizer: Optimizer, search: Callable[[], list[Any]]) -> list[Any]:
        """What a search finds, or found a short while ago."""
        last = self._done.get(what)
        if last is not None and last.optimizer() is optimizer:
            found = [reference() for reference in last.found]
            if time.monotonic() - last.when < _KEPT_S and None not in found:
                return found
        found = search()
        kept = tuple([weakref.ref(thing) for thing in found])
        self._done[what] = _Search(weakref.ref(optimizer), kept, time.monotonic())
        return found
