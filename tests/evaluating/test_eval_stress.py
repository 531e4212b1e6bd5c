"""Gradients read all the time beside a live training: it lives, and learns the same."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

CODE = "sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None) > 0"
ENOUGH = 1_000_000_000


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(4, marks=pytest.mark.slow),
        pytest.param(600, marks=pytest.mark.nightly),
    ],
)
def test_a_looped_gradient_check_changes_nothing(
    seconds: int, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single evals and a repeated one, one after the other: no crash, and every loss as alone."""
    beside = program("evaluated", str(ENOUGH))
    beside.wait_for_step(3)
    monkeypatch.setenv("PROBING_HOME", str(beside.home))
    job = probing.connect(beside.pid)
    end, rounds = time.monotonic() + seconds, 0
    while rounds < 10 or time.monotonic() < end:
        results = [job.eval(CODE), *job.eval_steps(CODE, every=2, times=5)]
        assert {result.value for result in results} == {"True"}
        rounds += 1
    assert job.eval("limit = done + 5", assign=True).error is None
    beside.wait_for_output("trained")
    assert beside.process.wait(30) == 0
    count = beside.output.split()[2]
    alone = program("evaluated", count, PROBING="0")
    alone.wait_for_output("trained", 60.0 + seconds)
    assert alone.output == beside.output
