"""What is recorded on demand, and ended while it is at work."""

from __future__ import annotations

import threading

import pytest

from probing.agent.on_demand.armed_job import ArmedJob
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


class Interrupted(ArmedJob):
    """A job that another thread ends just before it puts its hooks on."""

    hooks = 0

    def _work(self) -> None:
        other = threading.Thread(target=self.end)
        other.start()
        other.join(DEADLINE_S)
        self.state = "armed"
        self.hooks += 1

    def _let_go(self) -> None:
        self.hooks = 0


def test_a_job_that_is_ended_while_it_works_leaves_nothing() -> None:
    """What it puts in place after its end is gone as the step goes on, and it is over."""
    job = Interrupted(1, steps=10)
    assert job.step_ended()
    assert job.state == "over"
    assert job.hooks == 0
