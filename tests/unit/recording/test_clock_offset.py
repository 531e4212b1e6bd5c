"""What makes the monotonic clock the time since the epoch."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from probing.ring.writer import offset_between

pytestmark = pytest.mark.anypython

AHEAD_NS = 10**18
READING_NS = 50
PAUSE_NS = 2 * 10**9


def measured(pauses: Iterable[int]) -> int:
    """The offset where behind the readings of those numbers the process gets no processor."""
    passed_ns = number = 0
    held = set(pauses)

    def steady_ns() -> int:
        nonlocal passed_ns, number
        now_ns = passed_ns
        passed_ns += READING_NS + (PAUSE_NS if number in held else 0)
        number += 1
        return now_ns

    return offset_between(lambda: AHEAD_NS + steady_ns(), steady_ns)


@pytest.mark.parametrize("pauses", [(), (0,), (1,), (0, 1, 3, 4), range(12)])
def test_a_pause_between_two_readings_moves_no_time(pauses: Iterable[int]) -> None:
    """As long as one measurement of all is made without one."""
    assert measured(pauses) == AHEAD_NS
