"""How large the items of collections are, which are only looked at in part."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from probing.agent.sources.calls.call_shapes import read_tensors
from probing.agent.sources.leaks.containers import _item_bytes
from probing.agent.sources.leaks.references.named_places import _key_of
from probing.agent.sources.storage.saved_tensors import tensors_in

_LENGTH = 50_000
_FEW_BYTES = 20_000
_LARGE: dict[str, Callable[[], Any]] = {
    "list": lambda: [float(n) for n in range(_LENGTH)],
    "deque": lambda: deque(float(n) for n in range(_LENGTH)),
    "set": lambda: {float(n) for n in range(_LENGTH)},
    "dict": lambda: {n: float(n) for n in range(1 << 20, (1 << 20) + _LENGTH)},
    "defaultdict": lambda: defaultdict(int, {n: float(n) for n in range(1, 1 + _LENGTH)}),
    "OrderedDict": lambda: OrderedDict((n, float(n)) for n in range(1, 1 + _LENGTH)),
}


def _peak_bytes(look: Callable[[], Any]) -> int:
    """What looking takes at most."""
    tracemalloc.start()
    try:
        look()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.anypython
@pytest.mark.parametrize("kind", _LARGE)
def test_a_large_collection_is_not_copied_to_look_at_some_items(kind: str) -> None:
    """A copy is made in one call, during which no thread of the training runs."""
    thing = _LARGE[kind]()
    pair_bytes = 24.0 if kind in {"list", "deque", "set"} else 52.0
    assert _item_bytes(thing) == pair_bytes
    assert _peak_bytes(lambda: _item_bytes(thing)) < _FEW_BYTES
    assert _peak_bytes(lambda: _item_bytes([thing])) < _FEW_BYTES


@pytest.mark.anypython
def test_the_newest_items_count() -> None:
    """What a job keeps last says best what each step adds."""
    old, new = b"", bytes(1000)
    things: tuple[Any, ...] = (
        [old] * 500 + [new] * 500,
        deque([old] * 500 + [new] * 500),
        {n: old if n < 500 else new for n in range(1000)},
    )
    for thing in things:
        assert _item_bytes(thing) >= 1000
        thing.clear()
        assert _item_bytes(thing) == 0.0


@pytest.mark.anypython
def test_a_name_in_a_large_dictionary_is_found_without_a_copy() -> None:
    """The first of its names is told, and none where there is none."""
    thing = object()
    names: dict[Any, Any] = dict.fromkeys(range(_LENGTH))
    assert _key_of(names, thing) is None
    names |= {"first": thing, "second": thing}
    assert _key_of(names, thing) == "first"
    assert _peak_bytes(lambda: _key_of(names, thing)) < _FEW_BYTES


def test_a_long_argument_is_not_copied_to_read_the_shapes_in_it() -> None:
    """Only the first items are looked at."""
    import torch

    for argument in ([0] * _LENGTH, dict.fromkeys(range(_LENGTH))):
        read_tensors(argument, torch)
        assert _peak_bytes(lambda held=argument: read_tensors(held, torch)) < _FEW_BYTES  # type: ignore[misc]


@pytest.mark.anypython
def test_of_a_large_index_only_the_first_items_are_looked_at() -> None:
    """A data set has a dictionary of millions of places, or lists of lists, and no time for it."""
    large = {n: n for n in range(_LENGTH)}
    assert _peak_bytes(lambda: list(tensors_in(large, float))) < 20 * _FEW_BYTES
    assert len(list(tensors_in(large, int))) < _LENGTH
    assert len(list(tensors_in([[[1] * 100] * 100] * 100, int))) < _LENGTH
    assert list(tensors_in({"mean": 0.5, "all": ([1.5], 2)}, float)) == [1.5, 0.5]
