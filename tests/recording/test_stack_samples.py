"""Samples of the stacks of a training: off until they are asked for, then as often as they are."""

from __future__ import annotations

import pytest

import probing
from tests.harness.targets import ROOT, Target, wait_until

pytestmark = pytest.mark.torch


def test_samples_are_taken_while_a_rate_is_set(
    fresh_training: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None at first; then the training's own functions, with their lines, and no thread of ours."""
    monkeypatch.setenv("PROBING_HOME", str(fresh_training.home))
    process = probing.connect(fresh_training.pid)

    def newest() -> int:
        rows = process.query("SELECT coalesce(max(seq), 0) AS n FROM python.samples").to_pylist()
        return int(rows[0]["n"])

    assert newest() == 0
    process.set("sampling_hz", "50")
    wait_until(lambda: newest() > 100, "samples")
    process.set("sampling_hz", "0")
    last = newest()
    fresh_training.wait_for_step(fresh_training.step() + 2)
    assert newest() == last
    rows = process.query("SELECT * FROM python.samples").to_pylist()
    main = [row for row in rows if row["thread"] == "MainThread"]
    assert main
    assert {row["thread_id"] for row in main} == {fresh_training.pid}
    assert not any(row["thread"].startswith("probing-") for row in rows)
    ours = (str(ROOT / "probing"), str(ROOT / "agent"), str(ROOT / "cli"))
    assert {row["file"] for row in rows if row["file"].startswith(ours)} == set()
    assert any("<module> (train_gpt.py);" in row["stack"] for row in main)
    script = ROOT / "examples" / "train_gpt.py"
    own = [row for row in main if row["file"] == str(script)]
    assert own
    assert all(0 < row["lineno"] <= len(script.read_text("utf-8").splitlines()) for row in own)
    process.set("sampling_hz", "50")
    wait_until(lambda: newest() > last, "samples again")
