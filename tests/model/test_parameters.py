"""What is told of parameters, of what trains them, and of the order of their data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch


def test_each_parameter_has_what_trains_it(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optimizers, state, gradients and changes are those of the script, of each parameter."""
    target = program("owned")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(40)
    process = probing.connect(target.pid)
    rows = {row["parameter"]: row for row in process.live("parameters").dicts()}
    assert len(rows) == 10
    told = {
        name: (row["trainable"], row["optimizers"], row["optimizer"], row["has_state"])
        for name, row in rows.items()
        if name.endswith("weight")
    }
    assert told == {
        "frozen.weight": (False, 0, None, None),
        "shared.weight": (True, 2, "first, second", True),
        "unused.weight": (True, 1, "first", False),
        "wrapped.weight": (True, 1, "inner", True),
        "head.weight": (True, 0, None, None),
    }
    assert rows["shared.weight"]["version"] >= 2 * 40
    assert rows["unused.weight"]["version"] < 8
    assert rows["unused.weight"]["gradient_version"] is None
    assert rows["head.weight"]["gradient_version"] >= 40  # which nobody sets to zero
    assert rows["head.weight"]["numel"] == 4
    assert rows["head.weight"]["bytes"] == 16
    assert rows["shared.weight"]["state_bytes"] >= 2 * 4 * 16

    (loader,) = process.live("dataloaders").dicts()
    assert (loader["sampler"], loader["sampler_epoch"]) == ("SequentialSampler", None)
    assert loader["epochs"] >= 20
    modules = {row["module"]: row["dropout"] for row in process.live("modules").dicts()}
    assert modules["drop"] == 0.25
    assert modules["head"] is None
    environment = {row["name"]: row["value"] for row in process.live("environment").dicts()}
    assert environment["anomaly_detection"] == "False"
    assert environment["profiler"] == "False"
