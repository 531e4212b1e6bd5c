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
    assert len(rows) == 12
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
        "aside[0].0.weight": (True, 0, None, None),
    }
    assert rows["aside[0].0.weight"]["root"] == rows["head.weight"]["root"] == "Net"
    assert rows["aside[0].0.weight"]["has_gradient"]
    assert rows["shared.weight"]["version"] >= 2 * 40
    assert rows["unused.weight"]["version"] < 8
    assert rows["unused.weight"]["gradient_version"] is None
    assert rows["head.weight"]["gradient_version"] >= 39  # which nobody sets to zero
    assert rows["head.weight"]["numel"] == 4
    assert rows["head.weight"]["bytes"] == 16
    assert rows["shared.weight"]["state_bytes"] >= 2 * 4 * 16

    (loader,) = process.live("dataloaders").dicts()
    assert (loader["sampler"], loader["sampler_epoch"]) == ("SequentialSampler", None)
    assert loader["epochs"] >= 20
    modules = {row["module"]: row for row in process.live("modules").dicts()}
    assert (modules["drop"]["dropout"], modules["head"]["dropout"]) == (0.25, None)
    bad = {name: row["bad_statistics"] for name, row in modules.items()}
    assert (bad["norm"], bad["other"], bad["head"], bad["Net"]) == (8, 0, None, None)
    environment = {row["name"]: row["value"] for row in process.live("environment").dicts()}
    assert environment["anomaly_detection"] == "False"
    assert environment["profiler"] == "False"


def test_no_gradient_is_read_while_the_script_lets_go_of_it(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is freed the parameter points to it: who reads it then ends the process."""
    target = program("letting_go")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(4)
    process = probing.connect(target.pid)
    for _ in range(10):
        rows = process.live("parameters").dicts()
        told = [(row["parameter"], row["has_gradient"]) for row in rows]
        assert told == [("weight", True), ("bias", True)]
    assert target.process.poll() is None


def test_what_passes_a_wrapper_by_and_what_hooks_pile_up_are_seen(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper that is never called is told of its parameters alone; each hook by its function."""
    target = program("passed_by")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(20)
    process = probing.connect(target.pid)
    rows = process.live("parameters").dicts()
    assert {(row["model"], row["parameter"]): row["idle_wrapper"] for row in rows} == {
        ("net", "0.weight"): "DistributedDataParallel",
        ("net", "0.bias"): "DistributedDataParallel",
        ("net", "2.weight"): "DistributedDataParallel",
        ("net", "2.bias"): "DistributedDataParallel",
        ("dropped", "weight"): "DistributedDataParallel (gone)",
        ("called", "weight"): None,
        ("called", "bias"): None,
    }

    hooks = {row["function"]: row for row in process.live("hooks").dicts()}
    assert hooks.keys() - {"passing"} == {"keep", "once"}
    keep, once = hooks["keep"], hooks["once"]
    assert (keep["module"], keep["place"], keep["objects"]) == ("2", "forward_hooks", 1)
    assert keep["hooks"] >= 20
    assert (once["module"], once["hooks"], once["objects"]) == ("0", 2, 2)
    assert keep["file"].endswith("passed_by.py")
    assert keep["lineno"] < once["lineno"]
