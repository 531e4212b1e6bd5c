"""Trainings by a real DeepSpeed on CPUs: what is on record is what its engine does."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.targets import DEADLINE_S, ROOT, Target, program_path, wait_until

PLACE = ROOT / ".venv-deepspeed"
"""Where `scripts/deepspeed` has installed it."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not (PLACE / "bin" / "deepspeed").exists(), reason="scripts/deepspeed installs DeepSpeed"
    ),
]
_SIZE, _STEPS = 2, 12
_ROWS = (
    "SELECT step, loss, lr, micro_batches, samples, duration, forward_s, backward_s, optimizer_s"
    " FROM python.steps WHERE duration IS NOT NULL ORDER BY step"
)


@contextlib.contextmanager
def job(stage: int, folder: Path) -> Iterator[list[Target]]:
    """Two ranks of a stage of ZeRO, until both have told what they did."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    home = folder / "home"
    home.mkdir(mode=0o700)
    ranks = []
    try:
        for rank in range(_SIZE):
            env = {
                "PROBING": "1", "RANK": str(rank), "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(_SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1",
                "TORCH_EXTENSIONS_DIR": str(PLACE / "built"),
                "PATH": f"{PLACE / 'bin'}:{os.environ['PATH']}",  # it builds a part of it by ninja
            }  # fmt: skip
            argv = [str(PLACE / "bin" / "python"), str(program_path("on_deepspeed")), str(stage)]
            ranks.append(Target(argv, home, folder, **env))
        told = [folder / f"told-{rank}.json" for rank in range(_SIZE)]
        wait_until(lambda: all(path.exists() for path in told), "the steps", 5 * DEADLINE_S)
        yield ranks
    finally:
        (folder / "end").touch()
        for target in ranks:
            target.reap()


def rows_of(target: Target, rank: int) -> list[dict[str, Any]]:
    """The steps that are on record of a rank."""
    done = target.run(f"rank:{rank}", "query", _ROWS, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_steps_are_those_of_the_engine(tmp_path: Path) -> None:
    """Losses, rates, micro-batches and samples; times against the script's own clock."""
    with job(2, tmp_path) as ranks:
        for rank in range(_SIZE):
            rows = rows_of(ranks[0], rank)
            told = json.loads((tmp_path / f"told-{rank}.json").read_text())
            assert len(rows) == len(told) == _STEPS
            for row, own in zip(rows, told, strict=True):
                assert row["loss"] == pytest.approx(sum(own["losses"]) / 2, rel=1e-6)
                assert (row["lr"], row["micro_batches"], row["samples"]) == (own["lr"], 2, 8)
                parts = row["forward_s"] + row["backward_s"] + row["optimizer_s"]
                assert 0 < parts <= row["duration"]
            took, own_s = (
                sum(one[name] for one in of[2:])
                for of, name in ((rows, "duration"), (told, "seconds"))
            )
            assert took == pytest.approx(own_s, rel=0.25)
        said = ranks[0].run("-t", "all", "doctor", "--check", "likely")
        assert said.returncode == 0, said.stdout
