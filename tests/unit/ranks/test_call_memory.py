"""By how much memory grows in a collective: measured where it is due, or somebody watches."""

from __future__ import annotations

import pytest

from probing.agent.sources.collectives.call_memory import CallMemory
from probing.ring.format import NULL_INT

pytestmark = pytest.mark.anypython


class Sampler:
    """Memory of which each sample is a hundred bytes more; the next one is due at 50."""

    due_ns = 50
    bytes = NULL_INT

    def sample(self) -> None:
        """Take one."""
        self.bytes = max(self.bytes, 0) + 100


def test_a_call_is_measured_when_a_sample_is_due() -> None:
    """Before that, and of one whose beginning was not seen, nothing is known, which is no 0."""
    memory = CallMemory(Sampler(), lambda: False)  # type: ignore[arg-type]
    memory.begins(1, now_ns=40)
    memory.begins(2, now_ns=60)
    assert [memory.growth_of(word) for word in (1, 2, 3)] == [NULL_INT, 100, NULL_INT]
    assert memory.before == {}


def test_each_call_is_measured_while_a_leak_is_looked_for() -> None:
    """And calls that never end are not remembered for ever."""
    memory = CallMemory(Sampler(), lambda: True)  # type: ignore[arg-type]
    memory.begins(1, now_ns=0)
    assert memory.growth_of(1) == 100
    for word in range(1000):
        memory.begins(word, now_ns=0)
    assert len(memory.before) <= 256
