"""Gradients: the table of one step, and the norm that is taken now and then."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import probing
from probing.agent.sources.numbers.gradient_steps import GradientSteps
from probing.agent.sources.shared.interval import Interval
from probing.diagnosis.arming import sample_gradients
from probing.errors import ArmTimedOut
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch


def norms(target: Target) -> tuple[list[float], list[float | None]]:
    """What the script knows of its norms, and what is on record."""
    target.wait_for_output("ready")
    known = [json.loads(line)["own_norm"] for line in target.output.splitlines() if "{" in line]
    rows = probing.connect(target.pid).query(
        "SELECT grad_norm FROM python.steps WHERE duration IS NOT NULL ORDER BY step"
    )
    return known, [row["grad_norm"] for row in rows.to_pylist()]


def test_the_norm_is_that_of_torch(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the script does not clip, each norm from the third step on is torch's."""
    target = program("whole_steps", "unclipped")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    known, found = norms(target)
    assert found[:2] == [None, None], "how long a step takes is not known yet"
    assert found[2] == pytest.approx(known[2], rel=1e-6)


def test_it_is_null_in_between(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With next to no budget there is one norm, and NULL in all steps after it."""
    target = program("whole_steps", "unclipped", PROBING_OVERHEAD="0.000001")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    _, found = norms(target)
    assert [norm is not None for norm in found] == [False, False, True, False]


def test_the_interval_follows_from_cost_and_step() -> None:
    """A norm that costs three times what a step may is taken at every third step."""
    interval = Interval(0.01)
    assert [interval.taken(cost_ns, 10_000) for cost_ns in (0, 99, 300, 301)] == [1, 1, 3, 4]
    assert Interval(0.0).taken(1, 10_000) == sys.maxsize


def test_ranks_whose_costs_differ_have_steps_in_common() -> None:
    """What may be measured in every third step is in each fourth, in every fifth in each eighth."""
    ranks = [Interval(0.01), Interval(0.01)]
    assert all(interval.is_common(17) for interval in ranks)
    for interval, cost_ns in zip(ranks, (300, 500), strict=True):
        interval.taken(cost_ns=cost_ns, step_ns=10_000)
    due = [[step for step in range(18, 41) if one.is_common(step)] for one in ranks]
    assert due == [[20, 24, 28, 32, 36, 40], [24, 32, 40]]


def test_the_rows_are_those_of_the_script(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms, names, sizes and the update's ratio are what plain SGD makes of the gradients."""
    target = program("nonfinite", "well")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_output("ready")
    found = sample_gradients(probing.connect(target.pid), 2, timeout_s=DEADLINE_S)
    assert found.armed.done == 2
    assert len(found.rows) == 8
    assert {row["parameter"] for row in found.rows} == {
        "first.weight", "first.bias", "last.weight", "last.bias",
    }  # fmt: skip
    for row in found.rows:
        ratio = 0.01 * row["norm"] / row["weight_norm"]
        assert row["update_ratio"] == pytest.approx(ratio, rel=1e-2)
        assert row["nan_count"] == row["inf_count"] == 0
        assert row["unclipped_norm"] is None, "it does not clip"
        assert 0 < row["max_abs"] <= row["norm"] * (1 + 1e-6)


def test_a_gradient_whose_squares_are_too_small_is_not_zero(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares of 1e-26 are 0 in float32; the norm is not, and no gradient passes for dead."""
    target = program("nonfinite", "tiny")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_output("ready")
    found = sample_gradients(probing.connect(target.pid), 1, timeout_s=DEADLINE_S)
    own = [row for row in found.rows if row["parameter"].startswith("last.")]
    assert len(own) == 2, "what is before them computes in half precision, where 1e-26 is 0"
    for row in own:
        assert 0 < row["max_abs"] <= row["norm"] * (1 + 1e-6) < 1e-20


def test_a_step_whose_passes_had_begun_has_no_number_of_them(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for in the middle of four passes, the first step says nothing of them; others do."""
    target = program("updating", "zeroed")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(10)
    process, found = probing.connect(target.pid), []
    for _ in range(15):
        armed = sample_gradients(process, 2, timeout_s=DEADLINE_S).armed
        rows = process.query(
            f"SELECT passes, kept_passes FROM python.gradients WHERE step >= {armed.first_step}"
            f" AND step <= {armed.last_step} ORDER BY step"
        ).to_pylist()
        found.append([(row["passes"], row["kept_passes"]) for row in rows])
    first, second = ({pair for rows in found for pair in rows[at : at + 4]} for at in (0, 4))
    assert {len(rows) for rows in found} == {8}
    assert first <= {(4, 1), (None, None)}
    assert second == {(4, 1)}


def test_every_so_many_steps_by_setting(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gradients_every` samples one step in so many, without a look at finite elements."""
    target = program("nonfinite", "well", "9", PROBING_GRADIENTS_EVERY="4")
    assert target.process.wait(DEADLINE_S) == 0, target.output
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    rows = probing.connect(str(target.folder.path)).query("FROM python.gradients").to_pylist()
    assert {row["step"] for row in rows} == {0, 4, 8}
    assert {row["nan_count"] for row in rows} == {None}
    assert all(row["norm"] > 0 for row in rows)


def test_calls_of_a_model_alone_bring_gradients_no_nearer() -> None:
    """Where no optimizer steps, the wait for gradients has an end, and says why."""
    rows: Any = SimpleNamespace(has_stepped=False, disarm=lambda _: None, step_ended=bool)
    job = GradientSteps(rows, 1, 1)
    began = job.moved_s
    assert not job.step_ended()
    assert job.moved_s == began, "a call of the model is no progress"
    told = ArmTimedOut(30, 0, 1, notes=job.armed().notes)
    assert "within 30 s (no optimizer has stepped since the agent came)" in told.message
    rows.has_stepped = True
    assert not job.step_ended()
    assert job.moved_s > began
    assert job.armed().notes == ()


def test_what_is_left_out_of_one_optimizer_is_told_of_the_step() -> None:
    """An embedding's sparse gradient is noted, though the other optimizer of the step has none."""
    rows: Any = SimpleNamespace(has_stepped=True, disarm=lambda _: None, step_ended=bool)
    job = GradientSteps(rows, 1, 1)
    job.wrote(5, 0, 1)
    job.wrote(5, 8, 0)
    assert job.armed().notes[0].startswith("1 gradient was left out: sparse")
    job.wrote(6, 8, 0)
    assert job.armed().notes == ()


def test_gradients_without_a_plain_step_of_an_optimizer(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of updates by hand and of closures are shown; of torch.func it is said why not."""
    target = program("updates")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    target.wait_for_output("ready functional")
    found = sample_gradients(process, 1, timeout_s=DEADLINE_S)
    assert found.armed.state == "failed"
    assert "results of torch.func.grad" in found.armed.reason
    for command in ("profile", "fit"):
        refused = target.run(str(target.pid), command)
        assert refused.returncode == 4, refused.stderr
        assert "steps end inside of functions of torch.func" in refused.stderr
    losses = "SELECT loss, last_loss FROM python.steps WHERE duration IS NOT NULL ORDER BY step"
    assert all(0 < row["loss"] == row["last_loss"] for row in process.query(losses).to_pylist())
    names = {f"{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")}
    for way in ("by_hand", "by_grad", "closure", "lbfgs", "without_modules"):
        (target.cwd / way).touch()
        target.wait_for_output(f"ready {way}")
        found = sample_gradients(process, 2, timeout_s=DEADLINE_S)
        assert found.armed.state == "over", found.armed
        named = {"weight"} if way == "without_modules" else names
        assert {row["parameter"] for row in found.rows} == named, way
        assert len(found.rows) == 2 * len(named), "one row per parameter and step"
        assert all(0 < row["max_abs"] <= row["norm"] * (1 + 1e-6) for row in found.rows)
        if way == "lbfgs":
            assert "has computed gradients 3 times in its step" in found.armed.notes[0]
            continue
        assert found.armed.notes == ()
        for row in found.rows:
            ratio = 0.01 * row["norm"] / row["weight_norm"]
            assert row["update_ratio"] == pytest.approx(ratio, rel=1e-2), way


def test_what_a_generators_pass_left_in_its_critic_is_told_with_the_optimizer(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second step on, of the critic alone."""
    target = program("players")
    target.wait_for_step(5)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    sample_gradients(process, 3, timeout_s=DEADLINE_S)
    rows = process.query("SELECT step, model, left_by FROM python.gradients").to_pylist()
    first = min(row["step"] for row in rows)
    assert {row["left_by"] for row in rows if row["model"] == "critic" and row["step"] > first} == {
        "optimizer_g"
    }
    assert {row["left_by"] for row in rows if row["model"] == "generator"} == {None}
