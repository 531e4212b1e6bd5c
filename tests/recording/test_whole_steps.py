"""What python.steps and python.micro_batches say, compared with what the script itself knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

Ask = Callable[[str], list[dict[str, Any]]]
PHASES = (
    "data_wait_s",
    "to_device_s",
    "forward_s",
    "loss_s",
    "backward_s",
    "gradient_sync_s",
    "gradients_s",
    "optimizer_s",
    "other_s",
)
WAYS = (
    "plain",
    "divided",
    "multiplied",
    "undivided",
    "scaled",
    "two_losses",
    "not_a_number",
    "closure",
    "penalty",
)
WITHOUT_TIMES = (
    "SELECT step, model, loss, first_loss, last_loss, lr, samples, micro_batches, optimizer,"
    " optimizer_steps, failed, thread_id IN (SELECT max(thread_id) FROM python.steps) AS last"
    " FROM python.steps ORDER BY step",
    "SELECT step, optimizer, class, optimizers, model, loss, lr, failed"
    " FROM python.optimizer_steps ORDER BY seq",
    "SELECT step, module, stage, class, root, model, depth, training, failed, count(*) AS n"
    " FROM python.torch_trace GROUP BY ALL ORDER BY ALL",
)


@pytest.fixture
def trained(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[list[dict[str, Any]], Ask]]:
    """Trains in one way; returns what the script knows, and a function that asks the record."""

    def train(way: str) -> tuple[list[dict[str, Any]], Ask]:
        target = program("whole_steps", way, PROBING="1")
        target.wait_for_output("ready")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        process = probing.connect(target.pid)
        assert process.status().problems == ()
        lines = [line for line in target.output.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines], lambda sql: process.query(sql).to_pylist()

    return train


@pytest.mark.parametrize("way", WAYS)
def test_the_record_says_what_the_script_knows(
    way: str, trained: Callable[[str], tuple[list[dict[str, Any]], Ask]]
) -> None:
    """Loss, norm, rate, sizes and counts of every step are those of the script; phases add up."""
    known, ask = trained(way)
    steps = ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert len(steps) == len(known) == 4
    for step, facts in zip(steps, known, strict=True):
        last = facts.pop("last", None)
        for name, value in facts.items():
            near = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
            assert step[name] == near, (name, step)
        assert sum(step[name] or 0.0 for name in PHASES) == pytest.approx(step["duration"])
        assert step["optimizer_s"] > 0.0
        batches = ask(f"FROM python.micro_batches WHERE step = {step['step']} ORDER BY micro_batch")
        assert [b["micro_batch"] for b in batches] == list(range(step["micro_batches"]))
        for name in ("forward_s", "backward_s"):
            total = sum(b[name] for b in batches)
            assert step[name] == pytest.approx(total)
        if last is not None:
            assert batches[-1]["loss"] == pytest.approx(last, rel=1e-6)


def test_arithmetic_is_estimated_for_tokens(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """6 operations for each token and parameter outside of embeddings; no use of the device."""
    target = program("whole_steps", "tokens", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    rows = probing.connect(target.pid).query(
        "SELECT flops, tokens, mfu, tokens_per_s * duration AS again FROM python.steps"
        " WHERE duration IS NOT NULL"
    )
    for row in rows.to_pylist():
        # The embedding's 7 x 4 are left out; the layer has 4 x 7 + 7.
        assert (row["tokens"], row["flops"], row["mfu"]) == (15, 6 * 35 * 15, None)
        assert row["again"] == pytest.approx(15)


def test_torch_compiles_none_of_our_functions(
    trained: Callable[[str], tuple[list[dict[str, Any]], Ask]],
) -> None:
    """Not even where a whole step is compiled, and goes through them at its breaks."""
    ((told,), _) = trained("compiled")
    assert told["functions"] > 100
    assert told["compiled"] == []


def test_a_step_left_out_by_the_scaler_is_counted(
    trained: Callable[[str], tuple[list[dict[str, Any]], Ask]],
) -> None:
    """The third step was tried twice; the first try had infinite gradients."""
    _, ask = trained("scaled")
    skipped = [row["skipped"] for row in ask("SELECT skipped FROM python.steps ORDER BY step")]
    assert skipped == [0, 0, 1, 0, None]


def test_a_step_like_the_one_before_is_recorded_as_any_other(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not looked up again for it is still so: rates, groups, models, optimizers change."""
    records, known = [], []
    for way in ("short", "long"):
        target = program("changing_steps", way, PROBING="1")
        target.wait_for_output("done")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        process = probing.connect(target.pid)
        assert process.status().problems == ()
        records.append([process.query(sql).to_pylist() for sql in WITHOUT_TIMES])
        known.append(int(target.output.splitlines()[-2]))
        target.reap()
    assert [len(rows) > 80 for rows in records[0]] == [True, True, True]
    assert records[0] == records[1]
    assert known[0] > 40
    assert known[1] == 0
