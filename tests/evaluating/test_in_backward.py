"""Nothing is held, profiled, evaluated or changed while a backward pass is under way anywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from probing.messages.about.act import Cleanup
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

OFTEN, SELDOM = (
    ("tensors", "trainers", "beginning", "parallel"),
    ("modules", "worker", "transformed"),
)
WAYS = (*OFTEN, *(pytest.param(way, marks=pytest.mark.nightly) for way in SELDOM))
TIMES = 15
INSIDE = "time.sleep(0.012) or list(inside)"
"""Long enough for a pass to begin meanwhile that has nearly begun."""


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_done_within_a_backward_pass(
    way: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code runs between passes only; a profile and an action do, and the training goes on."""
    target = program("in_backward", way, PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    found = [job.eval(INSIDE, timeout_s=30.0) for _ in range(TIMES)]
    assert [answer.value for answer in found] == ["[]"] * TIMES
    # A training that a busy machine lets do nothing for a second stands still.
    assert "safe point" in {answer.where for answer in found} <= {"safe point", "agent thread"}
    if way != "transformed":  # nothing but code that is sent can be run inside of a transform
        assert job.profile(steps=1) is not None
    job.query("SELECT category, bytes FROM python.tensors LIMIT 1")
    if way not in {"worker", "transformed"}:  # there is an optimizer to act on
        assert job.act(Cleanup()).state == "done"
    assert job.eval("list(inside)", timeout_s=30.0).value == "[]"
    assert target.process.poll() is None
