"""What recording costs a step, by a clock that the test sets."""

from __future__ import annotations

import pytest

from probing.agent.sources.shared.step_costs import StepCosts

pytestmark = pytest.mark.anypython


class Processor:
    """The processor time of the thread that trains."""

    def __init__(self) -> None:
        self.ns = 0
        self.costs = StepCosts(lambda: self.ns)

    def step(self, **took_ns: int) -> bool:
        """A step in which sources take so long; returns whether it was timed."""
        began = self.ns
        for source, ns in took_ns.items():
            clock = self.costs.clock
            start = clock()
            self.ns += ns
            self.costs.add(source, clock() - start)
        is_timed = self.costs.clock() - began == sum(took_ns.values())
        self.costs.step_ended()
        return is_timed


def test_a_step_that_is_dearer_than_others_does_not_count() -> None:
    """The first steps learn names, and one may be held up: the usual cost is that of the others."""
    processor = Processor()
    processor.step(modules=9_000_000, backward=100)
    for number in range(200):
        processor.step(modules=800_000 if number == 90 else 400, backward=100)
    assert processor.costs.step_ns == {"modules": 400, "backward": 100}
    assert processor.costs.total_ns == 500


def test_few_steps_are_timed_once_some_are_known() -> None:
    """The clock itself is dear; the first steps are timed, then one in eight."""
    processor = Processor()
    timed = [processor.step(optimizers=50) for _ in range(80)]
    assert all(timed[:8])
    assert sum(timed[8:]) == 9
    assert processor.costs.step_ns == {"optimizers": 50}


def test_what_counts_for_itself_counts_once() -> None:
    """Memory is looked at in few steps, within what others do; samples are taken beside steps."""
    processor = Processor()
    costs = processor.costs
    for number in range(160):
        if number % 4 == 0:
            costs.count("memory", 80, is_within=costs.clock() > 0 or number == 0)
            processor.step(modules=180)
        else:
            processor.step(modules=100)
        costs.count("stack samples", 30, is_within=False)
    assert costs.step_ns["modules"] == 100
    assert costs.step_ns["memory"] == pytest.approx(20, rel=0.1)
    assert costs.step_ns["stack samples"] == pytest.approx(30, rel=0.1)
