"""Collections of Python that grow while some steps are watched, whatever is in them.

Rules of this file: looks in a thread of the agent's, beside the training; counts, compares classes,
and runs no code of any object. Only a collection of a built-in class is looked at. Nothing is held
between two looks; those that have grown at each of them are held until the watch is over.
"""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice, pairwise, starmap
from types import CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any, NamedTuple

from ..storage.living import MRO, kinds_of, of_generations, of_kinds
from ..storage.surveyor import Surveyor

LOOKS = 4
_AT_A_TIME = 8192
_LEAST_LENGTH = 3
_SAMPLE = 64
_TRIES = 8
_INNER = 16
_DEEPEST = 2
_MOST_KEPT = 8
_TRACKED = frozenset({list, set, deque, dict, defaultdict, OrderedDict})
_UNTRACKED = frozenset({dict, bytearray})
"""What the garbage collector may not know, though something that it knows refers to it."""
_PLAIN = frozenset({bytes, bytearray, str, int, float, complex, bool, type(None)})


class Lengths(NamedTuple):
    """How long each collection was, by identity, after so many steps: the training goes on."""

    step: float
    of: dict[int, int]


class Growing(NamedTuple):
    """A collection that has grown.

    Attributes:
        thing: It.
        length: How long it is.
        grown: By how many items since the first look.
        steps: How many steps have ended since then.
        looks: How many looks have found it longer than the one before.
        item_bytes: What one of its newest items takes at least, on average.
    """

    thing: Any
    length: int
    grown: int
    steps: float
    looks: int
    item_bytes: float


class GrowthWatch:
    """Looks at some moments, which the caller names.

    Args:
        step: Says how many steps have ended: the training goes on meanwhile.
    """

    def __init__(self, surveyor: Surveyor, step: Callable[[], int]) -> None:
        self._surveyor = surveyor
        self._step = step
        self._looks: list[Future[Any]] = []
        self._found: Future[Any] | None = None

    def look(self) -> None:
        """Have the lengths noted, soon."""
        self._looks.append(self._surveyor.begin(lambda: _lengths(self._step)))

    def judge(self) -> None:
        """Look for the last time, and find those that have grown at each look."""
        looks, self._looks = self._looks, []
        self._found = self._surveyor.begin(
            lambda: _growing([look.result() for look in looks], self._step)
        )

    def is_done(self) -> bool:
        """Whether the last look is over."""
        return self._found is None or self._found.done()

    def found(self) -> list[Growing]:
        """What has grown, that of the most bytes first; nothing where a look has failed."""
        if self._found is None or self._found.exception() is not None:
            return []
        growing: list[Growing] = self._found.result()
        return growing

    def close(self) -> None:
        """Hold nothing any more."""
        self._looks, self._found = [], None


def _collections() -> list[Any]:
    """The collections there are, each once; where the collector runs, without the newest."""
    generations = (1, 2) if gc.isenabled() else (0, 1, 2)
    searched = {kind for kind in kinds_of(generations) if _is_searched(kind)}
    things = of_generations(generations, searched)
    found = {id(thing): thing for thing in of_kinds((things,), _TRACKED)}
    parts = iter(things)
    while some := list(islice(parts, _AT_A_TIME)):
        untracked = of_kinds(starmap(gc.get_referents, (some,)), _UNTRACKED)
        found.update((id(thing), thing) for thing in untracked)
    return list(found.values())


def _is_searched(kind: type) -> bool:
    """Whether something of a class may refer to a collection that grows.

    What holds tensors for a moment only is left out: to hold it would raise the peak of memory.
    """
    others = (tuple, type, FrameType, FunctionType, CoroutineType, GeneratorType)
    return {sys.modules["torch"].Tensor, *others}.isdisjoint(MRO(kind))


def _lengths(step: Callable[[], int]) -> Lengths:
    there, before = _collections(), step()
    found = {id(c): length for c in there if (length := len(c)) >= _LEAST_LENGTH}
    return Lengths((before + step()) / 2, found)


def _growing(looks: list[Lengths], step: Callable[[], int]) -> list[Growing]:
    """Those that were longer at each look, and are longer still."""
    found: list[Growing] = []
    for thing in _collections():
        lengths = [look.of.get(id(thing)) for look in looks]
        known = [length for length in lengths if length is not None]
        series = [*known, len(thing)]
        rises = sum(later > early for early, later in pairwise(series))
        is_bounded = type(thing) is deque and thing.maxlen is not None
        if lengths[-1:] == [None] or is_bounded:
            continue
        if known and rises == len(series) - 1 and rises >= LOOKS - 1:
            since = next(at.step for at in looks if id(thing) in at.of)
            length, now = len(thing), step()
            grown, steps = length - series[0], max(1.0, now - since)
            found.append(Growing(thing, length, grown, steps, rises, _item_bytes(thing)))
    found.sort(key=lambda each: -each.grown * each.item_bytes)
    return found[:_MOST_KEPT]


def _item_bytes(thing: Any) -> float:
    """What one of the newest items takes at least."""
    kind = type(thing)
    if kind is bytearray:
        return 1.0
    for _ in range(_TRIES):
        with suppress(RuntimeError):  # the training has changed one while it was looked at
            sizes = [sum(map(_size, parts)) / max(1, len(parts)) for parts in _newest(thing)]
            return sum(sizes)
    return 0.0


def _newest(thing: Any) -> list[list[Any]]:
    """The newest items, keys and values apart; of a set any. All threads wait for the copy."""
    kind = type(thing)
    if kind is list:
        return [thing[-_SAMPLE:]]
    if kind is set:
        return [list(islice(thing, _SAMPLE))]
    parts: list[Any] = [thing] if kind is deque else [dict.keys(thing), dict.values(thing)]
    return [list(islice(reversed(part), _SAMPLE)) for part in parts]


def _size(item: Any, depth: int = 0) -> float:
    """The bytes of an item without tensors, which are counted elsewhere."""
    kind = type(item)
    if kind in _PLAIN:
        return sys.getsizeof(item)
    if kind is getattr(sys.modules.get("numpy"), "ndarray", None):
        return float(item.nbytes)
    own = float(object.__sizeof__(item))
    if kind in {list, tuple, set, deque} and depth < _DEEPEST:
        return sys.getsizeof(item) + _inner_bytes(item, len(item), depth)
    if kind is dict and depth < _DEEPEST:
        return sys.getsizeof(item) + _inner_bytes(item.values(), len(item), depth)
    return own


def _inner_bytes(parts: Iterable[Any], length: int, depth: int) -> float:
    """What so many parts take, if all are as the first ones."""
    first = list(islice(parts, _INNER))
    return sum(_size(part, depth + 1) for part in first) * (length / max(1, len(first)))
