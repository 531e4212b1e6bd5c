"""Spans of a script in several threads and tasks, and of functions that go on after they return."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import pickle
import threading
import types
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextvars import Context
from itertools import count
from typing import Any

import pytest

import probing
from probing.script import marks

pytestmark = pytest.mark.anypython


class Kept:
    """A recorder that keeps what it is told.

    Attributes:
        begun: The name and depth of each span, in the order in which they began.
        ended: The place of each in that order, and whether it failed, as they ended.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[Any, bool]] = []
        self._numbers = count()

    def span_began(self, name: str, depth: int) -> object:
        """Keep it."""
        self.begun.append((name, depth))
        return next(self._numbers)

    def span_ended(self, begun: object, *, failed: bool) -> None:
        """Keep it."""
        self.ended.append((begun, failed))


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """What is told while a test runs, in which every span ends."""
    recorder = Kept()
    monkeypatch.setattr(marks, "recorder", recorder)
    yield recorder
    assert len(recorder.ended) == len(recorder.begun)


def test_one_span_in_two_threads_is_a_row_of_each(kept: Kept) -> None:
    """The one that began first ends first and fails; the other does not."""
    shared, has_begun, may_end = probing.span("load"), threading.Event(), threading.Event()

    def other() -> None:
        with shared:
            has_begun.set()
            may_end.wait(60)

    thread = threading.Thread(target=other)
    with contextlib.suppress(KeyError), shared:
        thread.start()
        assert has_begun.wait(60)
        raise KeyError
    may_end.set()
    thread.join()
    assert kept.begun == [("load", 0), ("load", 0)]
    assert kept.ended == [(0, True), (1, False)]


def test_a_span_ends_its_own_row_while_other_threads_end_theirs(kept: Kept) -> None:
    """As one begun before it is ended just while it looks for its own."""
    shared = probing.span("load")

    def in_a_thread(call: Callable[[], object]) -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    class OfHere(tuple[Any, ...]):
        __slots__ = ()

        def __contains__(self, one: object) -> bool:
            if not kept.ended:
                in_a_thread(lambda: first.run(shared.__exit__, None))
            return super().__contains__(one)

    first, last = Context(), Context()
    first.run(shared.__enter__)
    with shared:
        in_a_thread(lambda: last.run(shared.__enter__))
        marks._open_here.set(OfHere(marks._open_here.get()))
    last.run(shared.__exit__, None)
    assert [row for row, _ in kept.ended] == [0, 1, 2]


def test_one_span_in_two_tasks_is_a_row_of_each(kept: Kept) -> None:
    """No task is nested in another that runs meanwhile, but in what was open where it was made."""
    shared = probing.span("load")

    async def one(mine: asyncio.Event, others: asyncio.Event) -> None:
        with shared:
            mine.set()
            await others.wait()

    async def both() -> None:
        with shared, probing.span("inner"):
            first, second = asyncio.Event(), asyncio.Event()
            await asyncio.gather(one(first, second), one(second, first))

    asyncio.run(both())
    assert kept.begun == [("load", 0), ("inner", 1), ("load", 2), ("load", 2)]
    assert [row for row, _ in kept.ended] == [3, 2, 1, 0]


def test_a_span_may_end_in_another_thread_than_it_began_in(kept: Kept) -> None:
    """As that of a generator does, which a thread has begun to read and another one closes."""

    def read() -> Generator[int]:
        with probing.span("read"):
            yield 1

    reading = read()
    thread = threading.Thread(target=reading.__next__)
    thread.start()
    thread.join()
    reading.close()
    assert kept.ended == [(0, False)]  # closed early, which is no failure


def test_a_span_in_a_recomputation_that_ends_early_has_not_failed(kept: Kept) -> None:
    """Torch ends it by an exception once it has what the backward pass needs."""
    enough = type("_StopRecomputationError", (Exception,), {})
    for error in (enough, ValueError):
        with contextlib.suppress(error), probing.span("attention"):
            raise error
    assert kept.ended == [(0, False), (1, True)]


def test_a_coroutine_is_a_span_until_it_has_run(kept: Kept) -> None:
    """Not only while it is made."""

    @probing.span("fetch")
    async def fetch() -> int:
        assert (kept.begun, kept.ended) == ([("fetch", 0)], [])
        return 7

    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(fetch()) == 7


def test_a_generator_is_a_span_until_it_has_run(kept: Kept) -> None:
    """It is sent what it was sent, and returns what it returned."""

    @probing.span("batches")
    def batches() -> Generator[int, int, str]:
        got = yield 1
        assert kept.ended == []
        yield got + 1
        return "done"

    reading = batches()
    assert (next(reading), reading.send(5)) == (1, 6)
    with pytest.raises(StopIteration, match="done"):
        next(reading)
    assert kept.ended == [(0, False)]


def test_a_generator_that_can_be_awaited_still_can(kept: Kept) -> None:
    """As one of `types.coroutine` can, and what is awaited in it."""

    @probing.span("fetch")
    @types.coroutine
    def fetch() -> Generator[Any, Any, int]:
        yield from asyncio.sleep(0).__await__()
        assert kept.ended == []
        return 7

    async def ask() -> int:
        return await fetch()

    assert asyncio.run(ask()) == 7
    assert kept.ended == [(0, False)]


def test_an_asynchronous_generator_is_a_span_until_it_has_run(kept: Kept) -> None:
    """What is sent, thrown and closed gets to it."""
    told: list[object] = []

    @probing.span("stream")
    async def stream() -> AsyncGenerator[int, int]:
        try:
            got = yield 1
            try:
                yield got + 1
            except KeyError:
                yield 0
            told.append(len(kept.ended))
        finally:
            told.append("over")

    async def read() -> None:
        whole = stream()
        assert (await whole.__anext__(), await whole.asend(5)) == (1, 6)
        assert await whole.athrow(KeyError()) == 0
        assert [item async for item in whole] == []
        part = stream()
        await part.__anext__()
        await part.aclose()
        failing = stream()
        await failing.__anext__()
        with pytest.raises(ValueError, match="this one"):
            await failing.athrow(ValueError("this one"))

    asyncio.run(read())
    assert told == [0, "over", "over", "over"]
    assert kept.ended == [(0, False), (1, False), (2, True)]


def test_what_holds_an_open_span_can_be_copied(kept: Kept) -> None:
    """The copy is closed."""
    mine = probing.span("save")
    with mine:
        for made in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
            with made:
                pass
    assert [name for name, _ in kept.begun] == ["save"] * 3


class Placed(probing.span):
    """A span of the job's own kind, which is made of something else than a name."""

    def __init__(self, *, place: int) -> None:
        super().__init__(f"at {place}")
        self.place = [place]


def test_a_copied_span_is_of_its_kind_and_keeps_what_it_has(kept: Kept) -> None:
    """Whatever its class is made with; what has begun in it stays the other one's."""
    mine = Placed(place=3)
    with mine:
        for made in (copy.copy(mine), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
            assert (type(made), made.place) == (Placed, [3])
            made.__exit__(None)
        assert kept.ended == []


def test_spans_that_never_end_hold_nothing_up(kept: Kept) -> None:
    """As where a script calls `__enter__` alone: what is kept of them stays small."""
    begun = [probing.span("once") for _ in range(1000)]
    for one in begun:
        one.__enter__()
    assert len(marks._open_here.get()) == 256
    assert max(depth for _, depth in kept.begun) == 255
    for one in begun:
        one.__exit__(None)
    assert [row for row, _ in kept.ended] == list(range(1000))
