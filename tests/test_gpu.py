"""The record of a training on a real CUDA device: `pytest -m gpu`, where there is one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import probing
from tests.support import Target

pytestmark = [pytest.mark.torch, pytest.mark.gpu]


def test_a_step_on_a_device(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and norms arrive a step later and are the script's own; the device's time is known."""
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
    arrived = rows[:-1]  # what the last step made may still be on its way: no step came after it
    assert [row["loss"] for row in arrived] == pytest.approx(losses[:-1], rel=1e-6)
    assert all(row["grad_norm"] > 0 for row in arrived)
    assert all(row["device_s"] > 0 for row in arrived)
    assert all(
        row["flops"] == 6 * (512 * 2048 + 2048 + 2048 * 100 + 100) * 32 * 128 for row in rows
    )
    names = {row["module"] for row in process.query(
        "SELECT DISTINCT module FROM python.torch_trace WHERE stage = 'backward' AND step = 10"
    ).to_pylist()}  # fmt: skip
    assert names == {"Sequential", "0", "1", "2"}
