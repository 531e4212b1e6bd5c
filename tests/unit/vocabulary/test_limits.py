"""How long is waited for, where nobody says."""

from __future__ import annotations

import io
import os

import pytest

from probing.messages.limits import examined_s, glance_s, grace_s, look_s, ready_s, start_s

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 2), (1.0, 2), (3.0, 6), (100.0, 15)])
def test_a_busy_machine_gets_more_time(per_processor: float, expected: float) -> None:
    """A process that waits for its turn is given longer, in proportion and up to a limit."""
    assert ready_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(
    ("per_processor", "expected"), [(0.0, 0.5), (1.0, 0.5), (4.0, 2), (100.0, 4)]
)
def test_a_busy_machine_gets_more_time_in_a_list(per_processor: float, expected: float) -> None:
    """One of many has less time than one that is asked alone, and more on a busy machine, too."""
    assert glance_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 5), (3.0, 15), (100.0, 30)])
def test_an_answer_has_longer_to_come_from_a_busy_machine(
    per_processor: float, expected: float
) -> None:
    """What the answer may take beyond the limit that the other side keeps is longer there, too."""
    assert grace_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 1), (3.0, 3), (100.0, 10)])
def test_a_look_from_outside_has_longer_on_a_busy_machine(
    per_processor: float, expected: float
) -> None:
    """One that came too late was taken for one that had seen nothing."""
    assert look_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 10), (2.0, 20), (100.0, 30)])
def test_an_agent_has_longer_to_start_on_a_busy_machine(
    per_processor: float, expected: float
) -> None:
    """Once it has begun, nothing but its turn is in its way."""
    assert start_s(per_processor * (os.cpu_count() or 1)) == expected


@pytest.mark.parametrize(("per_processor", "expected"), [(0.0, 20), (2.0, 40), (100.0, 45)])
def test_the_doctor_has_longer_on_a_busy_machine(per_processor: float, expected: float) -> None:
    """Else the time is over before it has looked; and never so long as a minute."""
    assert examined_s(per_processor * (os.cpu_count() or 1)) == expected


def test_the_machines_own_load_is_asked() -> None:
    """Without a figure it is the kernel's, and the answer lies between the two limits."""
    assert 2 <= ready_s() <= 15


def test_what_wants_to_run_now_counts_before_the_minute_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The figure of the last minute comes late to a crowd that has just begun."""
    crowd = 100 * (os.cpu_count() or 1)
    monkeypatch.setattr("builtins.open", lambda *_, **__: io.StringIO(f"0.1 0.1 0.1 {crowd}/999 7"))
    assert ready_s() == 15
