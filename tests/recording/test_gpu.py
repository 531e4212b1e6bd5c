"""The record of a training on a real CUDA device: `pytest -m gpu`, where there is one."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = [pytest.mark.torch, pytest.mark.gpu]


def test_a_step_on_a_device(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and norms come up to three steps later, and are the script's own."""
    target = program("on_cuda", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    assert process.status().problems == ()
    losses = json.loads(next(line for line in target.output.splitlines() if line.startswith("[")))
    rows = process.query(
        "SELECT loss, grad_norm, device_s, duration, flops FROM python.steps"
        " WHERE duration IS NOT NULL ORDER BY step"
    ).to_pylist()
    assert len(rows) == len(losses) == 20
    arrived = rows[:-3]  # what the last ones made may still be on its way: no step came after it
    assert [row["loss"] for row in arrived] == pytest.approx(losses[:-3], rel=1e-6)
    assert all(row["grad_norm"] > 0 for row in arrived)
    assert all(row["device_s"] > 0 for row in arrived)
    assert all(
        row["flops"] == 6 * (512 * 2048 + 2048 + 2048 * 100 + 100) * 32 * 128 for row in rows
    )
    names = {row["module"] for row in process.query(
        "SELECT DISTINCT module FROM python.torch_trace WHERE stage = 'backward' AND step = 10"
    ).to_pylist()}  # fmt: skip
    assert names == {"Sequential", "0", "1", "2"}


def test_modules_on_a_device(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a step that is timed, layers take no longer than their root, nor that than the step."""
    target = program("on_cuda", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    rows = (
        probing.connect(target.pid)
        .query(
            "SELECT step, sum(t.device_s) FILTER (WHERE t.depth = 1) AS layers,"
            " sum(t.device_s) FILTER (WHERE t.depth = 0) AS root, any_value(s.device_s) AS step_s"
            " FROM python.device_times t JOIN python.steps s USING (step)"
            " WHERE t.stage = 'forward' GROUP BY step ORDER BY step"
        )
        .to_pylist()
    )
    assert len(rows) > 10
    for row in rows:
        assert 0 < row["layers"] <= row["root"] <= row["step_s"]


def test_memory_of_a_device(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its allocator's figures are in order at each phase; the whole device's come by NVML only."""
    target = program("on_cuda", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    rows = process.query("FROM python.memory WHERE device = 'cuda:0' ORDER BY seq").to_pylist()
    assert [row["phase"] for row in rows[:2]] == ["attach", "before_forward"]
    assert [row["phase"] for row in rows].count("after_step") == 20
    for row in rows:
        assert row["allocated_bytes"] <= row["peak_bytes"] <= row["peak_reserved_bytes"]
        assert row["allocated_bytes"] <= row["reserved_bytes"] <= row["peak_reserved_bytes"]
    parameters = 100 * 512 + 512 * 2048 + 2048 + 2048 * 100 + 100
    ends = [row["allocated_bytes"] for row in rows if row["phase"] == "after_step"]
    assert min(ends) >= 16 * parameters, "parameters, gradients and both moments of AdamW"
    has_nvml = importlib.util.find_spec("pynvml") is not None
    known = [row for row in rows if row["device_used_bytes"] is not None]
    assert has_nvml or not known
    for row in known:  # from the first look of the agent's thread on, which may come after the last
        assert row["reserved_bytes"] < row["device_used_bytes"] <= row["device_total_bytes"]
