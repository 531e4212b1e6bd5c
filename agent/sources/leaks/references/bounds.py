"""How many items at the most what keeps a tensor can hold, on the way from a name to it.

Rules of this file: runs in the training thread; runs no code of any object, and keeps none. What is
filled up to a limit ends to grow by itself: a deque with a `maxlen`, a queue with a `maxsize`. Its
items may be collections, too: one of them grows by itself where it has most of what has come.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Sequence, Set as AbstractSet
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ...storage.living import MRO
from .named_places import MODULE_OF, NAME_OF, dictionary_of

_QUEUES = {
    ("queue", "Queue"): ("queue", "maxsize"),
    ("asyncio.queues", "Queue"): ("_queue", "_maxsize"),
    ("multiprocessing.queues", "Queue"): ("_buffer", "_maxsize"),
}
"""Classes, and the attributes of theirs that have the items and the limit."""
_NO_LIMIT = (1 << 31) - 1
"""What a queue of processes has for none."""
_GROWING = frozenset({list, set, deque, dict})
_PASSED_OVER = frozenset({type, ModuleType, FunctionType})
_DEEPEST = 4
_MOST_MET = 2000


class _Limit(NamedTuple):
    """A limit, and the collection that has the items."""

    most: int
    items: Any


def bound_on_way(things: Sequence[Any], kept: AbstractSet[int]) -> int | None:
    """The limit of what is filled on the way to something that stayed; None where there is none.

    Args:
        things: What refers to what, from the outside in; the last one is what stayed.
        kept: The identities of all of its kind that stayed.
    """
    found: _Limit | None = None
    outer: Any = None
    for place, thing in enumerate(things):
        limit = _limit_of(thing)
        is_last = place == len(things) - 1
        if limit is not None:
            found = limit
        elif found is not None and thing is not found.items and thing is not dictionary_of(outer):
            found = None if _grows(thing, kept, is_last=is_last) else found
        outer = thing
    return None if found is None else found.most


def _limit_of(thing: Any) -> _Limit | None:
    """How many items a deque or queue can hold; None of what has no limit."""
    kind = type(thing)
    if kind is deque:
        return None if thing.maxlen is None else _Limit(thing.maxlen, thing)
    names = next((_QUEUES[key] for cls in MRO(kind) if (key := _key_of(cls)) in _QUEUES), None)
    own = None if names is None else dictionary_of(thing)
    if names is None or own is None:
        return None
    items, most = own.get(names[0]), own.get(names[1])
    return _Limit(most, items) if type(most) is int and 0 < most < _NO_LIMIT else None


def _key_of(cls: type) -> tuple[Any, str]:
    return MODULE_OF(cls), NAME_OF(cls)


def _grows(thing: Any, kept: AbstractSet[int], *, is_last: bool) -> bool:
    """Whether a collection inside of one with a limit has most of what stayed, or is that."""
    if _GROWING.isdisjoint(MRO(type(thing))):
        return False
    inside = None if is_last else _inside(thing, kept)
    return inside is None or not kept or 2 * inside > len(kept)


def _inside(thing: Any, kept: AbstractSet[int]) -> int | None:
    """How much of what stayed is in a collection; None where that is too much to look through."""
    found, seen, waiting = 0, {id(thing)}, [thing]
    for _ in range(_DEEPEST):
        outermost, waiting = waiting, []
        for outer in outermost:
            is_long = type(outer) in _GROWING and len(outer) > _MOST_MET
            for inner in () if is_long else gc.get_referents(outer):
                if id(inner) in seen:
                    continue
                seen.add(id(inner))
                if id(inner) in kept:
                    found += 1
                elif type(inner) not in _PASSED_OVER:
                    waiting.append(inner)
            if is_long or len(seen) > _MOST_MET:
                return None
    return found
