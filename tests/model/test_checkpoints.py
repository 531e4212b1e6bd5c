"""The checkpoints that a script writes are on record, and which of them is sound."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target, program_path, wait_until

pytestmark = pytest.mark.torch


def test_the_last_sound_checkpoint_is_named_once_the_loss_is_lost(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is known with its step, what is in it and its size; the way back from NaN is told."""
    target = program("saving")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    rows = process.query("FROM python.checkpoints ORDER BY seq").to_pylist()
    first, shards, other = rows[:3]
    path = str(target.cwd / "ck-4.pt")
    assert (first["path"], first["saved_by"], first["bytes"]) == (
        path, "torch.save", (target.cwd / "ck-4.pt").stat().st_size
    )  # fmt: skip
    assert (first["step"], first["has_model"], first["has_optimizer"]) == (4, True, True)
    assert (first["weights_finite"], first["failed"]) == (True, False)
    assert first["caller"].startswith("saving.py:")
    assert (shards["path"], shards["saved_by"], shards["has_model"]) == (
        str(target.cwd / "shards"), "torch.distributed.checkpoint", True
    )  # fmt: skip
    assert (other["has_model"], other["has_optimizer"]) == (False, False)
    (target.cwd / "go").touch()
    bad = "SELECT count(*) AS n FROM python.checkpoints WHERE NOT weights_finite"
    wait_until(lambda: process.query(bad).to_pylist()[0]["n"] > 1, "checkpoints that are lost")
    sound = "SELECT max(step) AS step FROM python.checkpoints WHERE weights_finite AND has_model"
    step = process.query(sound).to_pylist()[0]["step"]
    status = target.run(str(target.pid), "status").stdout
    last = target.cwd / f"ck-{step}.pt"
    assert f"the newest checkpoint from before that: {last}, after step {step}" in status, status
    words = [str(program_path("saving")), "--resume", str(last)]
    assert f"{shlex.join(words)}\n" in status  # what a shell reads, wherever the tests lie
