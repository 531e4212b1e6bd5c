"""What autograd keeps for the backward pass: the tensors saved in the graphs that are alive.

Rules of this file: walks a graph from its last nodes, in whichever thread looks while the training
stands still, or in the training thread itself. Never unpacks: a saved tensor that hooks have packed
is taken as it was packed, so no code of the user runs and nothing is computed anew. What a
backward pass has freed is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .living import MRO

_PREFIX = "_raw_saved_"
_MOST_NODES = 1_000_000
_DEEPEST = 3
_MOST_ITEMS = 256


class Saved(NamedTuple):
    """A tensor that a node of the graph keeps.

    Attributes:
        number: When the node was made, in the count of its thread.
    """

    tensor: Any
    number: int


def can_be_read() -> bool:
    """Whether this torch shows saved tensors without unpacking them."""
    return hasattr(sys.modules["torch"]._C._autograd.SavedTensor, "data")


def saved_tensors(nodes: Iterable[Any]) -> Iterator[Saved]:
    """Every tensor saved below these nodes, as often as it was saved."""
    if not can_be_read():
        return
    plain = sys.modules["torch"].Tensor
    waiting, seen = list(nodes), set[Any]()
    names: dict[type, tuple[str, ...]] = {}
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind = type(node)
        if kind not in names:
            names[kind] = tuple(name for name in dir(kind) if name.startswith(_PREFIX))
        waiting += [following for following, _ in node.next_functions]
        for value in _kept_by(node, names[kind]):
            for tensor in tensors_in(value, plain):
                yield Saved(tensor, node._sequence_nr())


def tensors_in(value: Any, plain: type) -> Iterator[Any]:
    """The tensors in a value or in containers of it, without running any code of theirs."""
    waiting = [(value, 0)]
    while waiting:
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
                parts = list(dict.values(item))
            waiting += [(part, depth + 1) for part in parts]


def _kept_by(node: Any, names: tuple[str, ...]) -> Iterator[Any]:
    """What one node keeps: saved tensors as they were packed, and what its author put on it."""
    for name in names:
        try:
            saved = getattr(node, name)
        except RuntimeError:  # freed by a backward pass
            continue
        for one in saved if type(saved) in (tuple, list) else (saved,):
            if one is not None:
                yield _packed(one)
    own = getattr(node, "__dict__", None)  # of a user's own autograd function
    if own:
        yield from list(own.values())


def _packed(saved: Any) -> Any:
    """What a saved tensor holds; None when it has been freed."""
    try:
        return saved.data
    except RuntimeError:
        return None
