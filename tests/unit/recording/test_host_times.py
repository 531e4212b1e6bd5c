"""What a step cost the processor, as the C part and Python tell it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from probing.agent.sources.steps.rows.host_times import COLUMNS, HostTimes
from probing.ring.native import IN_C


@pytest.mark.parametrize("in_c", [False, True])
def test_what_a_thread_has_used_since_a_reading_is_filled_in(in_c: bool) -> None:
    """All columns are; one more reading comes of it."""
    if in_c and IN_C is None:
        pytest.skip("there is no C part here")
    times = HostTimes(in_c=in_c)
    before = times.read()
    sum(range(100_000))
    closing: list[Any] = [None] * (len(COLUMNS) + 2)
    after = times.fill(closing, slice(1, 1 + len(COLUMNS)), before)
    assert closing[0] is closing[-1] is None
    spent = [end - start for start, end in zip(before[0][1:], after[0][1:], strict=True)]
    assert closing[1:-1] == [*spent[:2], 0.0, *spent[2:]]
    assert spent[0] > 0
    assert [type(one) for one in closing[1:-1]] == [float] * 3 + [int] * 4


@pytest.mark.parametrize("in_c", [False, True])
def test_what_another_thread_has_used_is_not_known(in_c: bool) -> None:
    """Nothing is filled in, nor where there was no reading."""
    if in_c and IN_C is None:
        pytest.skip("there is no C part here")
    times = HostTimes(in_c=in_c)
    read: list[Any] = [None]
    thread = threading.Thread(target=lambda: read.append(times.read()))
    thread.start()
    thread.join()
    for before in read:
        closing: list[Any] = [None] * len(COLUMNS)
        found = times.fill(closing, slice(0, len(COLUMNS)), before)
        assert found[0][0] == threading.get_ident()
        assert closing == [None] * len(COLUMNS)
