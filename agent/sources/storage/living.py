"""Objects of some classes that are alive in the process, by way of the garbage collector.

Rules of this file: compares classes and runs no code of any object: `isinstance` would ask an
object for its `__class__`, and lazy ones answer with an import or a warning. What is young is asked
for in lists of its own, since objects move to older generations and never back.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from itertools import compress, islice
from typing import Any

MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_GENERATIONS = (0, 1, 2)
_AT_A_TIME = 8192


class _Wanted(dict[type, bool]):
    """Whether objects of a class are wanted; asks about each class once."""

    def __init__(self, classes: Sequence[type]) -> None:
        super().__init__()
        self._classes = frozenset(classes)

    def __missing__(self, kind: type) -> bool:
        self[kind] = is_wanted = not self._classes.isdisjoint(MRO(kind))
        return is_wanted


class Survey:
    """The old objects of some classes, looked for beforehand: they are most of all there are.

    It runs beside the training, a few thousand objects at a time, and keeps weak references; none
    to a parameter of a module, which torch would then refuse to swap for another one. What has
    grown old since is not in it, so it holds good only until the collector makes anything old.
    """

    def __init__(self, classes: Sequence[type]) -> None:
        self._collections = _old_collections()
        wanted, found = _Wanted(classes), list[Any]()
        things = iter(gc.get_objects(_GENERATIONS[-1]))
        while some := list(islice(things, _AT_A_TIME)):
            found += compress(some, map(wanted.__getitem__, map(type, some)))
        registered = {
            id(tensor)
            for thing in found
            if (own := getattr(thing, "__dict__", None)) and type(own.get("_parameters")) is dict
            for tensor in list(own["_parameters"].values())
        }
        self._references = [ref for t in found if id(t) not in registered and (ref := _weak(t))]

    def is_good(self) -> bool:
        """Whether nothing has grown old since."""
        return self._collections == _old_collections()

    def alive(self) -> list[Any]:
        """Those that still live."""
        return [thing for ref in self._references if (thing := ref()) is not None]


def living(classes: Sequence[type], survey: Survey | None = None) -> list[list[Any]]:
    """The objects of each class or a class derived from it, each once.

    All of it is done in C: half a million objects take some tens of milliseconds.

    Args:
        survey: What is known of the old ones. Parameters of modules are missing then.
    """
    wanted, found = _Wanted(classes), dict[int, Any]()
    generations: tuple[int, ...] = _GENERATIONS
    if survey is not None and survey.is_good():
        found.update((id(thing), thing) for thing in survey.alive())
        generations = _GENERATIONS[:-1]
    for generation in generations:
        things = gc.get_objects(generation)
        chosen = compress(things, map(wanted.__getitem__, map(type, things)))
        found.update((id(thing), thing) for thing in chosen)
        del things
    return [[t for t in found.values() if cls in MRO(type(t))] for cls in classes]


def _old_collections() -> list[int]:
    """How often anything may have grown old; before Python 3.14 that takes an older generation."""
    first = 0 if sys.version_info >= (3, 14) else 1
    return [stats["collections"] for stats in gc.get_stats()[first:]]


def _weak(thing: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(thing)
    except TypeError:  # a class with slots
        return None
