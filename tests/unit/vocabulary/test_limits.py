"""How long is waited for, where nobody says."""

from __future__ import annotations

import os

import pytest

from probing.messages.limits import grace_s, ready_s, start_s

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 2), (1.0, 2), (3.0, 6), (100.0, 15)])
def test_a_busy_machine_gets_more_time(per_processor: float, expected: float) -> None:
    """A process that waits for its turn is given longer, in proportion and up to a limit."""
    assert ready_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 5), (3.0, 15), (100.0, 30)])
def test_an_answer_has_longer_to_come_from_a_busy_machine(
    per_processor: float, expected: float
) -> None:
    """What the answer may take beyond the limit that the other side keeps is longer there, too."""
    assert grace_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 10), (2.0, 20), (100.0, 30)])
def test_an_agent_has_longer_to_start_on_a_busy_machine(
    per_processor: float, expected: float
) -> None:
    """Once it has begun, nothing but its turn is in its way."""
    assert start_s(per_processor * (os.cpu_count() or 1)) == expected


def test_the_machines_own_load_is_asked() -> None:
    """Without a figure it is the kernel's, and the answer lies between the two limits."""
    assert 2 <= ready_s() <= 15
