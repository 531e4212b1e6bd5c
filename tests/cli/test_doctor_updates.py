"""`probing doctor` on what becomes of gradients, warnings of torch, and how images are laid out."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.harness.doctor import examine, sure
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

Start = Callable[..., Target]


@pytest.mark.parametrize(
    ("way", "rule"),
    [
        ("zeroed", "thrown-gradients"),
        ("skips", "thrown-gradients"),
        ("fine", "no-update"),
        pytest.param("rounded", "no-update", marks=pytest.mark.nightly),
        pytest.param("stale", "no-optimizer", marks=pytest.mark.nightly),
        pytest.param("denormal", "denormals", marks=pytest.mark.nightly),
    ],
)
def test_what_becomes_of_gradients_is_named(program: Start, way: str, rule: str) -> None:
    """Gradients that are thrown away, change nothing, or leave numbers that only decay."""
    target = program("updating", way)
    target.wait_for_step(300 if way == "denormal" else 100)
    report = examine(target)
    found = {one["rule"]: one["certainty"] for one in report["findings"]}
    assert rule in found, json.dumps(report)
    assert way == "denormal" or found[rule] != "possible"  # it is not slower within seconds


@pytest.mark.parametrize(
    ("way", "rule", "words"),
    [("scheduled", "scheduler-first", "at updating.py:"), ("sizes", "broadcast-loss", "[32, 32]")],
)
def test_what_torch_has_warned_of_is_told(program: Start, way: str, rule: str, words: str) -> None:
    """The warnings that nobody read are findings, with the line of the script."""
    target = program("updating", way)
    target.wait_for_step(30)
    sql = "SELECT category FROM python.warnings WHERE file LIKE '%updating.py'"
    asked = target.run(str(target.pid), "query", "--format", "csv", sql)
    assert asked.stdout.splitlines() == ["category", "UserWarning"], asked.stderr
    found = {one["rule"]: one for one in examine(target)["findings"]}
    assert found[rule]["certainty"] == "likely"
    assert words in found[rule]["summary"]


@pytest.mark.parametrize(
    ("way", "certainty", "words"),
    [
        ("softmax", "certain", "with 6 classes it cannot fall below 1.04"),
        pytest.param("sigmoid", "certain", "0.31 for a label of 1", marks=pytest.mark.nightly),
        pytest.param("picked", "likely", "nll_loss", marks=pytest.mark.nightly),
        pytest.param("far", "likely", "no divergence", marks=pytest.mark.nightly),
    ],
)
def test_what_a_loss_does_not_expect_is_told(
    program: Start, way: str, certainty: str, words: str
) -> None:
    """Probabilities where it wants logits or logarithms."""
    target = program("classifying", way)
    target.wait_for_step(50)
    found = {one["rule"]: one for one in examine(target)["findings"]}
    assert found["loss-input"]["certainty"] == certainty
    assert words in found["loss-input"]["summary"]


@pytest.mark.parametrize(
    "way",
    ["routed", *(pytest.param(way, marks=pytest.mark.nightly)
                 for way in ("scores", "taught", "mixed"))],
)  # fmt: skip
def test_a_softmax_elsewhere_is_none_of_its_business(program: Start, way: str) -> None:
    """In attention, in the choice of experts, of a teacher, and before a logarithm."""
    target = program("classifying", way)
    target.wait_for_step(50)
    assert "loss-input" not in {one["rule"] for one in examine(target)["findings"]}


@pytest.mark.parametrize(
    "way",
    [
        "accumulates",
        "kept",
        pytest.param("coarse", marks=pytest.mark.nightly),
        pytest.param("attacks", marks=pytest.mark.nightly),
        pytest.param("flushed", marks=pytest.mark.nightly),
    ],
)
def test_what_looks_like_lost_gradients_is_healthy(program: Start, way: str) -> None:
    """Accumulation, gradients of inputs alone, denormals that are 0, and rests that are kept."""
    target = program("updating", way)
    target.wait_for_step(300 if way == "flushed" else 100)
    report = examine(target)
    assert sure(report) == []
    assert {"denormals", "no-update"}.isdisjoint(found["rule"] for found in report["findings"])


@pytest.mark.parametrize(
    ("way", "is_lost"), [("lost", True), pytest.param("kept", False, marks=pytest.mark.nightly)]
)
def test_channels_last_is_lost_between_convolutions(
    program: Start, way: str, *, is_lost: bool
) -> None:
    """What undoes it is told; a batch that the first convolution puts right is not."""
    target = program("imaging", way)
    target.wait_for_step(30)
    rules = {one["rule"]: one["summary"] for one in examine(target)["findings"]}
    assert ("channels-last-lost" in rules) is is_lost
    assert not is_lost or "3 of 3 convolutions" in rules["channels-last-lost"]
