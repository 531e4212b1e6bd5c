"""Rows that wait for numbers of a device, completed by several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from probing.agent.sources.numbers.number import Missed, Number
from probing.agent.sources.steps.rows.late_rows import LateRows
from probing.ring.format import NULL_FLOAT
from probing.ring.writer import RingWriter

pytestmark = pytest.mark.anypython


class Kept:
    """A ring that keeps what its rows are completed with.

    Attributes:
        closed: That, in order.
        dropped: How many were counted.
        oldest: The first that has not been overwritten.
    """

    def __init__(self) -> None:
        self.closed: list[tuple[int, Any]] = []
        self.dropped = self.oldest = 0

    def still_holds(self, word: int) -> bool:
        """Whether it has not been overwritten."""
        return word >= self.oldest

    def count_dropped(self) -> None:
        """One more."""
        self.dropped += 1

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


def wait_for(late: LateRows, ring: Kept, count: int) -> list[Coming]:
    """Rows of so many numbers that are on their way, by their places."""
    numbers = [Coming() for _ in range(count)]
    for word, coming in enumerate(numbers, len(ring.closed)):
        late.write(cast("RingWriter", ring), word, [None], [(0, Number(0.0, coming))])
    return numbers


def come(numbers: list[Coming]) -> None:
    """All are here."""
    for coming in numbers:
        coming.has_come = True


def flush_all(late: LateRows) -> int:
    """Have it asked as often as steps end; returns how often that was."""
    times = 0
    while late.waiting and times < 100:
        late.flush()
        times += 1
    return times


def test_rows_of_a_device_that_is_hundreds_of_steps_behind_are_completed() -> None:
    """In order, and not all at once, for a step is to end soon."""
    ring, late = Kept(), LateRows()
    come(wait_for(late, ring, 2000))
    assert flush_all(late) > 4
    assert ring.closed[2000:] == [(word, 0.5) for word in range(2000)]
    assert ring.dropped == 0


def test_rows_that_can_wait_no_longer_are_counted_as_dropped() -> None:
    """They are the newest: those that were first are told, and then others can wait again."""
    ring, late = Kept(), LateRows()
    numbers = wait_for(late, ring, 2500)
    assert (len(late.waiting), ring.dropped) == (2048, 452)
    come(numbers)
    flush_all(late)
    assert ring.closed[2500:] == [(word, 0.5) for word in range(2048)]
    come(wait_for(late, ring, 10))
    flush_all(late)
    assert (len(ring.closed), ring.dropped) == (2500 + 2048 + 20, 452)


def test_a_row_that_was_overwritten_holds_up_no_others() -> None:
    """A number that never comes is waited for no longer than its row is there."""
    ring, late = Kept(), LateRows()
    come(wait_for(late, ring, 3)[1:])
    late.flush()
    assert len(late.waiting) == 3
    ring.oldest = 1
    late.flush()
    assert not late.waiting
    assert [row for row in ring.closed if row[1]] == [(1, 0.5), (2, 0.5)]
    assert ring.dropped == 0


def test_at_the_end_what_is_here_is_told_and_what_is_not_is_counted() -> None:
    """Whatever waits then is never told."""
    ring, late = Kept(), LateRows()
    come(wait_for(late, ring, 1000)[:900])
    late.end()
    assert ring.closed[1000:] == [(word, 0.5) for word in range(900)]
    assert (len(late.waiting), ring.dropped) == (0, 100)


def test_a_forked_child_leaves_the_rows_of_its_parent_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are in the parent's ring, and the numbers on its device."""
    ring, late = Kept(), LateRows()
    come(wait_for(late, ring, 10)[:5])
    monkeypatch.setattr("os.getpid", lambda: -1)
    late.end()
    assert (len(ring.closed), ring.dropped, len(late.waiting)) == (10, 0, 0)


def test_a_number_that_was_not_brought_is_null_and_counted() -> None:
    """Once, as its row is complete, whatever else of that was missed or came late."""
    ring, late, coming = Kept(), LateRows(), Coming()
    later = [(0, Missed()), (1, Missed()), (2, Number(0.0, coming))]
    late.write(cast("RingWriter", ring), 1, [None] * 3, later)
    assert ring.dropped == 0
    coming.has_come = True
    late.flush()
    assert ring.closed[-1] == (1, NULL_FLOAT)
    assert ring.closed[-1][1] is NULL_FLOAT
    assert ring.dropped == 1
