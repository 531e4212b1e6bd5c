"""The texts of values in the answer of an eval, which have an end whatever the value is."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from probing.agent.eval.value_texts import represent

pytestmark = pytest.mark.anypython

MANY, LIMIT = 30_000, 1 << 20
ALL = "(print() writes them)"


class Item:
    """Counts how many of it are made into text."""

    written = 0

    def __repr__(self) -> str:
        Item.written += 1
        return "item"


class Own(list[Any]):
    """A list that says itself what it is."""

    def __repr__(self) -> str:
        return f"Own of {len(self)}: {[*self]!r}"


Pair = namedtuple("Pair", "first second")  # noqa: PYI024 - what is derived from tuple, not typed
ITEMS = [Item() for _ in range(MANY)]


@pytest.mark.parametrize(
    ("value", "begin"),
    [
        (ITEMS, "[item, item, "),
        (deque(ITEMS), "deque([item, item, "),
        (Own(ITEMS), "Own([item, item, "),
        (OrderedDict(enumerate(ITEMS)), "OrderedDict({0: item, 1: item, "),
        (defaultdict(Item, enumerate(ITEMS)), "defaultdict({0: item, 1: item, "),
        (Counter(ITEMS), "Counter({item: 1, item: 1, "),
        (dict(enumerate(ITEMS)).values(), "dict_values([item, item, "),
        (dict(enumerate(ITEMS)).items(), "dict_items([(0, item), (1, item), "),
        (MappingProxyType(dict(enumerate(ITEMS))), "mappingproxy({0: item, 1: item, "),
        (UserDict(enumerate(ITEMS)), "{0: item, 1: item, "),
        (UserList(ITEMS), "[item, item, "),
        (Pair(1, ITEMS), "Pair(first=1, second=[item, "),
        ([[[*ITEMS[:40]] for _ in range(40)] for _ in range(40)], "[[[item, item, "),
    ],
)
def test_of_many_items_the_first_are_written(value: Any, begin: str) -> None:
    """Of every built-in container, of what is derived from it, and of what is nested."""
    Item.written = 0
    text, _ = represent(value, LIMIT)
    assert text.startswith(begin)
    assert " more" in text
    assert Item.written <= 20_000


@pytest.mark.parametrize(
    "value",
    [["x" * MANY], {"x" * MANY: 1}, {1: bytearray(b"x" * MANY)}, array("B", b"x" * MANY)],
)
def test_of_a_long_string_the_beginning_is_written(value: Any) -> None:
    """As an item, as a key, and where it is an array of numbers."""
    text, omitted = represent(value, LIMIT)
    assert " more" in text
    assert len(text) < MANY / 2
    assert not omitted


def test_of_what_is_nested_too_deep_nothing_is_written() -> None:
    """However many items are there."""
    value: Any = ITEMS
    for _ in range(60):
        value = [value]
    Item.written = 0
    text, _ = represent(value, LIMIT)
    assert text == "[[[[[[[[[[...]]]]]]]]]]"
    assert not Item.written


def test_no_more_is_written_than_is_shown() -> None:
    """Of long items, of which each container holds few enough; the text says how many follow."""
    item, long = Item(), "x" * 9_000
    text, omitted = represent([[{long: item} for _ in range(900)] for _ in range(4)], 100_000)
    assert (text.endswith(f" more], ... 3 more {ALL}]"), omitted) == (True, 0)
    assert len(text) < 30_000


class Tall:
    """Takes three lines, as arrays do."""

    def __repr__(self) -> str:
        return "tall(\n 1,\n 2)"


@pytest.mark.parametrize(
    ("value", "end"),
    [
        (deque([(Item(), [0.123456789] * 8, "left") for _ in range(MANY)]), f" more {ALL}])"),
        ([Tall() for _ in range(900)], f"... 1,601 more lines {ALL}"),
        ([Tall() for _ in range(MANY)], f"... 29,975 more {ALL}]"),
    ],
    ids=["long items", "whole", "shortened"],
)
def test_it_ends_after_some_lines(value: Any, end: str) -> None:
    """Of a terminal: it says how many follow, and how they are seen."""
    text, omitted = represent(value, LIMIT)
    assert (text.endswith(end), omitted) == (True, 0)
    assert sum(len(line) // 80 + 1 for line in text.split("\n")) <= 201


IN_ITSELF: list[Any] = [1]
IN_ITSELF.append(IN_ITSELF)


@pytest.mark.parametrize(
    "value",
    [
        Own([1]),
        IN_ITSELF,
        [[[[[[[[[[[[1]]], {2: 3}]]]]]]]]],
        UserDict(a=UserList([1])),
        MappingProxyType({1: 2}),
        OrderedDict(a=1),
        Pair(1, [2]),
        {1: set(), 2: (3,)},
        deque([1], maxlen=3),
        {}.keys(),
        SimpleNamespace(a=1),
        frozenset(),
    ],
)
def test_what_is_short_writes_itself(value: Any) -> None:
    """It is its own text, to the last character."""
    assert represent(value, LIMIT) == (repr(value), 0)
