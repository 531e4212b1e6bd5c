"""Rows that wait for numbers of a device, completed by several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from probing.agent.sources.numbers.number import Number
from probing.agent.sources.steps.rows.late_rows import LateRows
from probing.ring.writer import RingWriter

pytestmark = pytest.mark.anypython


class Kept:
    """A ring that keeps what its rows are completed with."""

    def __init__(self) -> None:
        self.closed: list[tuple[int, Any]] = []

    def close_row(self, word: int, _state: int, *closing: Any) -> None:
        """Keep it."""
        self.closed.append((word, closing[0]))


class Coming:
    """A number on its way; something happens as it is asked for, as another thread gets its turn.

    Attributes:
        meanwhile: What happens, once.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.meanwhile: Callable[[], None] | None = None

    def is_here(self) -> bool:
        """See `PendingNumber`."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            thread = threading.Thread(target=meanwhile)
            thread.start()
            thread.join(60)
        return self.has_come

    def value(self) -> float:
        """See `PendingNumber`."""
        return 0.5


def test_a_row_that_another_thread_completes_meanwhile_is_completed_once() -> None:
    """It was the last, so that none is left to be taken; and its number is read once more."""
    ring, late = Kept(), LateRows()
    coming = Coming()
    late.write(cast("RingWriter", ring), 1, [None], [(0, Number(0.0, coming))])
    coming.has_come, coming.meanwhile = True, late.flush
    late.flush()
    assert ring.closed == [(1, None), (1, 0.5)]
    assert not late.waiting


def test_the_next_row_waits_on_where_another_thread_completes_the_one_before() -> None:
    """It is not lost, and not completed before its number has come."""
    ring, late = Kept(), LateRows()
    first, second = Coming(), Coming()
    for word, coming in ((1, first), (2, second)):
        late.write(cast("RingWriter", ring), word, [None], [(0, Number(0.0, coming))])
    first.has_come, first.meanwhile = True, late.flush
    late.flush()
    second.has_come = True
    late.flush()
    assert (1, 0.5) in ring.closed
    assert ring.closed[-1] == (2, 0.5)
    assert not late.waiting
