"""Which tensors stand over storages, and which have a graph that keeps them.

Rules of this file: runs in the training thread; holds nothing beyond a call. A storage may have
several tensors: one that the script keeps, others that it made on the way, and those that stand
for what autograd has saved, to which nothing in Python refers.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from typing import Any, NamedTuple

from .....safety.collector import without_collections
from ...calls.backward.graph_nodes import leaf_at
from ...storage.bounded.loose_tensors import lots
from ...storage.living import living
from ...storage.saved_tensors import Reach, newest_last, saved_tensors
from ...storage.tensor_parts import REFUSALS, parts_of
from ...torch_types import Node

Place = tuple[str, int]
"""The device of a storage, and where it begins."""

_MOST_TENSORS = 8
"""How many tensors over one storage are looked at, and how many whose graph keeps it."""
_LONGEST_S = 0.1
"""Processor time for each of the two ways through the graphs; the newest are walked first."""
_OVER_S = 0.2
"""How long tensors over storages are looked for; the newest are looked at first."""


class Over(NamedTuple):
    """The tensors over some storages.

    Attributes:
        by_place: By storage, the oldest first; one over which Python has none is not in it.
        sizes: Their bytes.
        left_out: How many tensors, the oldest, there was no time for.
    """

    by_place: dict[Place, list[Any]]
    sizes: dict[Place, int]
    left_out: int


class Keepers(NamedTuple):
    """The tensors whose graphs keep storages.

    Attributes:
        by_place: By storage; one that no graph keeps, as far as they were walked, is not in it.
        is_whole: Whether all graphs were walked.
    """

    by_place: dict[Place, list[Any]]
    is_whole: bool


def tensors_over(addresses: Collection[int]) -> Over:
    """The tensors over the storages at some addresses, as far as Python has any."""
    torch: Any = sys.modules["torch"]
    found: dict[Place, list[Any]] = {}
    sizes: dict[Place, int] = {}
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), without_collections():
        tensors = living((torch.Tensor,))[0]
        until, left_out = time.perf_counter() + _OVER_S, len(tensors)
        for lot in lots(tensors):
            for tensor in _near(lot, addresses, torch):
                for part in parts_of(tensor):
                    if part.address in addresses:
                        place = (part.device, part.address)
                        found.setdefault(place, []).append(tensor)
                        sizes[place] = max(sizes.get(place, 0), part.bytes)
            left_out -= len(lot)
            if time.perf_counter() >= until:
                break
    return Over(
        {place: own[: -_MOST_TENSORS - 1 : -1] for place, own in found.items()}, sizes, left_out
    )


def _near(lot: list[Any], addresses: Collection[int], torch: Any) -> list[Any]:
    """The tensors of which a part may be at one of the addresses: read of all by calls of C code.

    Of what is unlike the others, each has to be looked at.
    """
    if not {torch.Tensor, torch.nn.Parameter}.issuperset(map(type, lot)):
        return lot
    try:
        begins = list(map(torch.UntypedStorage.data_ptr, map(torch.Tensor.untyped_storage, lot)))
    except REFUSALS:
        return lot
    return list(compress(lot, map(addresses.__contains__, begins)))


def graph_keepers(places: Collection[Place]) -> Keepers:
    """The tensors at the ends of the graphs that keep each storage.

    Nothing is computed from those, so that no graph keeps them: something else does. All graphs are
    walked once, down to what keeps the storages, and from there up again; the older ones as far as
    there is time.
    """
    torch: Any = sys.modules["torch"]
    ends: dict[Any, list[Any]] = {}
    savers: dict[Place, set[Any]] = {}
    up, down = (Reach(_LONGEST_S, time.thread_time) for _ in range(2))
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        tensors = living((torch.Tensor,))[0]
        for tensor, node in zip(tensors, map(torch.Tensor.grad_fn.__get__, tensors), strict=False):
            if node is not None:
                ends.setdefault(node, []).append(tensor)
        above = _above(ends, up)
        for node, tensor in _kept_by_graphs(ends, above, down):
            for part in parts_of(tensor):
                if (place := (part.device, part.address)) in places:
                    savers.setdefault(place, set()).add(node)
    found = {place: _last_ones(nodes, above, ends) for place, nodes in savers.items()}
    return Keepers(found, is_whole=up.most is None and down.most is None)


def _kept_by_graphs(
    ends: Iterable[Any], nodes: Iterable[Node], reach: Reach
) -> Iterator[tuple[Any, Any]]:
    """What nodes have saved, and the leaves that they are to give gradients to."""
    for saved in saved_tensors(ends, reach):
        yield saved.node, saved.tensor
    for node in nodes:
        leaf = leaf_at(node)
        if leaf is not None:
            yield node, leaf


def _above(ends: Iterable[Any], reach: Reach) -> dict[Any, list[Any]]:
    above: dict[Any, list[Any]] = {}
    waiting, seen = newest_last(ends), set[Any]()
    reach.begin()
    while waiting and not reach.is_over(len(seen)):
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for following, _ in node.next_functions:
            if following is not None:
                above.setdefault(following, []).append(node)
                waiting.append(following)
    return above


def _last_ones(
    nodes: set[Node], above: dict[Any, list[Any]], ends: dict[Any, list[Any]]
) -> list[Any]:
    """The tensors that some nodes lead to and nothing is computed from, the nearest first."""
    found: list[Any] = []
    waiting, seen = deque(nodes), set(nodes)
    while waiting and len(found) < _MOST_TENSORS:
        node = waiting.popleft()
        upper = [one for one in above.get(node, ()) if one not in seen]
        if node not in above:
            found += ends.get(node, ())
        seen.update(upper)
        waiting += upper
    return found[:_MOST_TENSORS]
