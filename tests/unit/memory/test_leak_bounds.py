"""The limit of what is filled on the way to what stayed, and what grows inside of it anyway."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from probing.agent.sources.leaks.references.bounds import bound_on_way

pytestmark = pytest.mark.anypython


class _Tensor:
    """Stands for a tensor: nothing of it is read."""


class _Step(NamedTuple):
    seen: Any
    reward: float


class _Rollout:
    def __init__(self, *seen: Any) -> None:
        self.seen = seen


class _Batches(queue.Queue[Any]):
    """A queue of the program's own."""


def way(outer: Any, *inner: Any, kept: Sequence[Any] = ()) -> int | None:
    """The limit on the way from something to the last of what is in it."""
    return bound_on_way((None, outer, *inner), {id(one) for one in kept or inner[-1:]})


def filled(of: Any, items: Sequence[Any]) -> Any:
    """A queue with items."""
    for item in items:
        of.put_nowait(item)
    return of


@pytest.mark.parametrize("make", [queue.Queue, queue.LifoQueue, _Batches, asyncio.Queue])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda one: one,
        lambda one: {"seen": one, "reward": 0.5},
        lambda one: (one, 0.5),
        lambda one: _Step(one, 0.5),
        lambda one: [{"seen": one}, {"seen": None}],
    ],
)
def test_a_queue_with_a_limit_has_it_whatever_its_items_are(
    make: Callable[[int], Any], wrap: Callable[[Any], Any]
) -> None:
    """A batch is a dictionary or a tuple of tensors, which do not grow."""
    kept = [_Tensor() for _ in range(5)]
    items = [wrap(one) for one in kept]
    of = filled(make(8), items)
    inside = of._queue if make is asyncio.Queue else of.queue
    between = [] if items[2] is kept[2] else [items[2]]
    for own in ([], [vars(of)]):
        assert way(of, *own, inside, *between, kept[2], kept=kept) == 8
    assert way(filled(make(0), items), inside, *between, kept[2], kept=kept) is None


def test_a_queue_of_processes_has_its_limit_until_it_is_sent() -> None:
    """Without one it has the largest number of a semaphore."""
    kept = [_Tensor() for _ in range(4)]
    for given, most in ((6, 6), (0, None)):
        of = multiprocessing.get_context("fork").Queue(given)
        of._buffer.extend(kept)  # type: ignore[attr-defined]
        assert way(of, of._buffer, kept[1], kept=kept) == most  # type: ignore[attr-defined]
        of._buffer.clear()  # type: ignore[attr-defined]
        of.close()


def test_a_replay_memory_has_the_limit_of_its_deque() -> None:
    """Its items are tuples, objects or lists of steps."""
    kept = [_Tensor() for _ in range(6)]
    for wrap in (lambda one: (one, 1, 0.5), _Rollout, lambda one: [one, None]):
        memory = deque([wrap(one) for one in kept], maxlen=6000)
        assert way(memory, memory[2], kept[2], kept=kept) == 6000
        assert way(deque(memory), memory[2], kept[2], kept=kept) is None


@pytest.mark.parametrize("kind", [list, dict, deque])
def test_what_grows_inside_of_a_limit_is_a_leak(kind: type) -> None:
    """One of eight windows that has all that stayed is what grows, and not the eight."""
    kept = [_Tensor() for _ in range(6)]
    grows: Any = dict(enumerate(kept)) if kind is dict else kind(kept)
    windows = deque([[], grows], maxlen=8)
    assert way(windows, grows, kept[2], kept=kept) is None
    assert way(deque([(grows,)], maxlen=8), (grows,), grows, kept[2], kept=kept) is None
    assert way(windows, grows) is None  # a collection of plain numbers that grows itself


def test_what_cannot_be_looked_through_is_taken_for_a_leak() -> None:
    """Nor is anything known of a graph's tensors, or of none."""
    kept = [_Tensor() for _ in range(6)]
    large = [_Tensor() for _ in range(3000)]
    large[:2] = kept[:2]
    assert way(deque([large], maxlen=8), large, kept[0], kept=kept) is None
    assert bound_on_way((deque([kept[:1]], maxlen=8), kept[:1], kept[0]), frozenset()) is None
    assert bound_on_way((deque(kept, maxlen=8), kept[0]), frozenset()) == 8


def test_a_trajectory_is_an_item_however_many_tensors_it_has() -> None:
    """Two of sixteen in a queue of eight: each has half of what came."""
    kept = [_Tensor() for _ in range(32)]
    items = [[_Step(one, 0.0) for one in kept[at : at + 16]] for at in (0, 16)]
    of = filled(queue.Queue(8), items)
    assert way(of, of.queue, items[0], items[0][3], kept[3], kept=kept) == 8
