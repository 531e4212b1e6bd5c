"""What the doctor's rules say of a rate that was changed in a running training."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from probing.cli.reports.cheap_findings import find_cheaply
from probing.messages.about.act import Lr, Undo
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch


def test_a_raised_rate_is_told_as_the_action_that_it_was(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the step that is on record of both; and nothing of it once it was undone."""
    target = program("acted", "lambda")
    target.wait_for_step(60)  # so many are looked at before a rate counts as raised
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid, timeout_s=DEADLINE_S)

    def told() -> list[str]:
        found = find_cheaply(job, job.status(), within_s=DEADLINE_S).findings
        return [one.summary for one in found if one.rule in {"rate-raised", "rate-cut"}]

    act = job.act(Lr(scale=100.0))
    target.wait_for_step((act.step or 0) + 70)
    (raised,) = told()
    assert "by `act lr` (scale=100.0)" in raised
    undone = job.act(Undo())
    target.wait_for_step((undone.step or 0) + 70)
    assert told() == []
