"""A training whose gradient scaler leaves out every step, because the loss is NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch


def test_a_training_without_steps_is_told_and_can_be_asked(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor names the step, and evals, actions and watches find a place between two tries."""
    target = program("scaler_of_nan", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    pid = str(target.pid)

    done = target.run(pid, "arm", "nan", "--steps", "3")
    assert done.returncode == 0, done.stderr
    assert "input" in done.stdout
    assert "NaN" in done.stdout
    assert target.run(pid, "eval", "1 + 1").stdout.strip() == "2"
    done = target.run(pid, "act", "clip", "1.0")
    assert done.returncode == 0, done.stderr
    done = target.run(pid, "act", "undo")
    assert done.returncode == 0, done.stderr

    (row,) = json.loads(target.run(pid, "query", "@not-finite", "--json").stdout)
    assert (row["step"], math.isnan(float(row["loss"] or "nan"))) == (30, True)
    assert row["bad_micro_batches"] >= 10
    assert "the loss has been NaN since step 30" in target.run("list").stderr
    assert "NaN since step 30" in target.run(pid, "status").stdout
    hang = target.run(pid, "hang", "--check").stdout
    assert f"Its loss is not finite, last in step 30: `probing -t {pid} arm nan`" in hang
    told = json.loads(target.run(pid, "doctor", "--json").stdout)
    found = {one["rule"]: one for one in told["findings"]}
    assert found["loss-not-finite"]["since_step"] == 30
    assert "the gradient scaler has left out each step" in found["loss-not-finite"]["summary"]
    assert "loss" not in told["healthy"]
    assert process.status().problems == ()
