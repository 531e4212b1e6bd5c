"""What autograd keeps for the backward pass: the tensors saved in the graphs that are alive.

Rules of this file: walks a graph from its last nodes, in whichever thread looks while the training
stands still, or in the training thread itself. What hooks have packed is taken as it was packed, so
no code of the user runs and nothing is computed anew. All else is unpacked: what torch shows of it
packed, where a node has saved its own result, would stay behind in the garbage collector as another
tensor, to which nothing refers. What a backward pass has freed is skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from ..torch_types import Node
from .living import MRO

_PREFIX = "_raw_saved_"
_EACH = 64
"""Nodes between two looks at the clock."""
_DEEPEST = 3
_MOST_ITEMS = 256
_MOST_IN_ALL = 10_000
"""A data set may be an index of millions, and is walked while the training stands still."""


class Saved(NamedTuple):
    """A tensor that a node of the graph keeps.

    Attributes:
        number: When the node was made, in the count of its thread.
        node: The node.
    """

    tensor: Any
    number: int
    node: Any


class Reach:
    """How far looks go through the graphs that are alive, the newest first.

    A training that keeps its graphs has ever more nodes, and stands still while they are walked.
    What one look had no time for the looks after it leave out, too: it would seem to have come
    since.

    Attributes:
        most: How many nodes there is time for; None while there is for all.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.most: int | None = None
        self._seconds, self._clock = seconds, clock
        self._end = 0.0

    def begin(self) -> None:
        """A look begins."""
        self._end = self._clock() + self._seconds

    def is_over(self, walked: int) -> bool:
        """Whether no more nodes are to be walked."""
        if self.most is None or walked < self.most:
            if walked % _EACH or self._clock() < self._end:
                return False
            self.most = walked
        return True


def newest_last(nodes: Iterable[Any]) -> list[Any]:
    """Nodes in the order in which they were made, without those that are None."""
    return sorted((node for node in nodes if node is not None), key=lambda n: n._sequence_nr())


def saved_tensors(nodes: Iterable[Any], reach: Reach) -> Iterator[Saved]:
    """Every tensor saved below these nodes, as often as it was saved; the newest nodes first.

    Args:
        reach: How far to go.
    """
    if not hasattr(sys.modules["torch"]._C._autograd.SavedTensor, "data"):
        return
    plain = sys.modules["torch"].Tensor
    waiting, seen = newest_last(nodes), set[Any]()
    names: dict[type, tuple[tuple[str, str], ...]] = {}
    reach.begin()
    while waiting and not reach.is_over(len(seen)):
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind = type(node)
        if kind not in names:
            names[kind] = _saved_by(kind)
        waiting += [following for following, _ in node.next_functions]
        for value in _kept_by(node, names[kind]):
            for tensor in tensors_in(value, plain):
                yield Saved(tensor, node._sequence_nr(), node)


def tensors_in(value: Any, plain: type) -> Iterator[Any]:
    """The tensors in a value or in the first items of containers of it; runs no code of theirs."""
    waiting = [(value, 0)]
    for _ in range(_MOST_IN_ALL):
        if not waiting:
            return
        item, depth = waiting.pop()
        mro = MRO(type(item))
        if plain in mro:
            yield item
        elif depth < _DEEPEST:
            parts: Iterable[Any] = ()
            if tuple in mro:
                parts = tuple.__getitem__(item, slice(_MOST_ITEMS))
            elif list in mro:
                parts = list.__getitem__(item, slice(_MOST_ITEMS))
            elif dict in mro:
                parts = list(islice(dict.values(item), _MOST_ITEMS))
            waiting += [(part, depth + 1) for part in parts]


def _saved_by(kind: type) -> tuple[tuple[str, str], ...]:
    """What nodes of a class save: the names of each as it is packed, and unpacked."""
    there = dir(kind)
    packed = [name for name in there if name.startswith(_PREFIX)]
    unpacked = [f"_saved_{name.removeprefix(_PREFIX)}" for name in packed]
    return tuple(
        [
            (name, one if one in there else one[1:])
            for name, one in zip(packed, unpacked, strict=True)
        ]
    )


def _kept_by(node: Node, names: tuple[tuple[str, str], ...]) -> Iterator[Any]:
    """What one node keeps: saved tensors, and what its author put on it."""
    for name, unpacked in names:
        try:
            saved = getattr(node, name)
        except RuntimeError:  # freed by a backward pass
            continue
        packed = saved if type(saved) in (tuple, list) else (saved,)
        if all(one is None or getattr(one, "unpack_hook", one) is None for one in packed):
            values = _unpacked(node, unpacked)
            if values is not None:
                yield from values
                continue
        yield from [_packed(one) for one in packed if one is not None]
    own = getattr(node, "__dict__", None)  # of a user's own autograd function
    if own:
        yield from list(own.values())


def _unpacked(node: Node, name: str) -> list[Any] | None:
    """What a node has saved under a name; None where it has to be taken as it was packed.

    That is so of what was changed in place since, and of wrappers without memory of their own: with
    the dispatch to their class disabled, one of them would come without what it consists of.
    """
    try:
        value = getattr(node, name)
        values = list(value) if type(value) in (tuple, list) else [value]
        whole = all(one is None or one.untyped_storage().data_ptr() for one in values)
    except (RuntimeError, AttributeError, NotImplementedError):
        return None
    return values if whole else None


def _packed(saved: Any) -> Any:
    """What a saved tensor holds; None when it has been freed."""
    try:
        return saved.data
    except RuntimeError:
        return None
