"""Rows of a ring as the C part writes them, and as Python does."""

from __future__ import annotations

import gc
import math
import random
import sys
from typing import Any

import pytest

from probing.ring import native
from probing.ring.format import DONE, FAILED, HEADER_SIZE, NULL_FLOAT, NULL_INT, layout_of
from probing.ring.rows import PlainRows, Rows, rows_of
from probing.tables import TABLES, Table

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python"),
]

_CAPACITY = 8
_RECORDED = [table for table in TABLES if table.kind == "recorded"]
_LIMITS = {"q": (NULL_INT, 2**63 - 1), "I": (0, 2**32 - 1), "B": (0, 255)}


def _pair(table: Table) -> tuple[tuple[bytearray, Rows], tuple[bytearray, Rows]]:
    """Two empty rings of a table, one for each way."""
    layout = layout_of(table)
    made = []
    for in_c in (True, False):
        data = bytearray(HEADER_SIZE + _CAPACITY * layout.row_size)
        words = native.Words(4)
        made.append((data, rows_of(layout, memoryview(data), words, in_c=in_c)))
    return made[0], made[1]


def _values(fields: tuple[Any, ...], draw: random.Random) -> list[Any]:
    """Something for each column, with the edges of what fits."""
    floats = [0.0, -1.5, math.inf, math.nan, NULL_FLOAT, 1e300, 3]
    return [
        draw.choice(floats)
        if field.code == "d"
        else draw.choice([*_LIMITS[field.code], draw.randrange(200), True])
        for field in fields
    ]


@pytest.mark.parametrize("table", _RECORDED, ids=lambda table: table.full_name)
def test_both_ways_write_the_same_bytes(table: Table) -> None:
    """Of every recorded table: rows opened, written anew, completed and overwritten."""
    (one, in_c), (other, plain) = _pair(table)
    assert type(in_c) is not PlainRows
    layout, draw, words = layout_of(table), random.Random(0), list[int]()
    for _ in range(60):
        opening = _values(layout.opening, draw)
        closing = _values(layout.closing, draw)
        word = draw.choice(words[-2 * _CAPACITY :]) if words else 4
        match draw.randrange(3) if words else 0:
            case 0:
                words.append(in_c.open_row(*opening))
                assert plain.open_row(*opening) == words[-1]
            case 1:
                in_c.reopen_row(word, *opening)
                plain.reopen_row(word, *opening)
            case _:
                state = draw.choice([DONE, FAILED])
                in_c.close_row(word, state, *closing)
                plain.close_row(word, state, *closing)
        assert one == other
        assert in_c.still_holds(word) == plain.still_holds(word)


def test_what_does_not_fit_leaves_no_trace() -> None:
    """Too few values, too many, too large or of another kind: an error, and the ring as it was."""
    table = next(table for table in _RECORDED if table.name == "torch_trace")
    (data, rows), _ = _pair(table)
    layout = layout_of(table)
    opening = [1] * len(layout.opening)
    word = rows.open_row(*opening)
    before = bytes(data)
    number = next(n for n, field in enumerate(layout.opening) if field.code == "I")
    for wrong in (
        opening[:-1],
        [*opening, 1],
        [*opening[:number], -1, *opening[number + 1 :]],
        [*opening[:number], 2**32, *opening[number + 1 :]],
        [*opening[:number], "x", *opening[number + 1 :]],
    ):
        with pytest.raises((TypeError, OverflowError)):
            rows.open_row(*wrong)
        with pytest.raises((TypeError, OverflowError)):
            rows.reopen_row(word, *wrong)
    for closing in ([], [2**64] * len(layout.closing), [0] * (len(layout.closing) + 1)):
        with pytest.raises((TypeError, OverflowError)):
            rows.close_row(word, DONE, *closing)
    assert bytes(data) == before
    assert rows.open_row(*opening) == word + 4


def test_a_ring_is_let_go_of() -> None:
    """Once released, nothing is written and nothing held; a ring of another size is refused."""
    table = _RECORDED[0]
    layout = layout_of(table)
    (data, rows), _ = _pair(table)
    with pytest.raises(BufferError):
        data.append(0)
    rows.release()
    rows.release()
    data.append(0)
    with pytest.raises(ValueError, match="closed"):
        rows.open_row(*[0] * len(layout.opening))
    with pytest.raises(ValueError, match="size"):
        rows_of(layout, memoryview(data), native.Words(4), in_c=True)
    words = native.Words(4)
    held = sys.getrefcount(words)
    view = memoryview(bytearray(HEADER_SIZE + _CAPACITY * layout.row_size))
    for _ in range(1000):
        rows_of(layout, view, words, in_c=True).open_row(*[0] * len(layout.opening))
    gc.collect()
    assert sys.getrefcount(words) == held
    view.release()
