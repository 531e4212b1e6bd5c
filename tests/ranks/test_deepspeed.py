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

_PARAMETERS = (
    "SELECT model, count(*) AS tensors, sum(numel)::BIGINT AS numel,"
    " sum(optimizers)::BIGINT AS optimizers, sum(state_bytes)::BIGINT AS state_bytes"
    " FROM python.parameters GROUP BY model ORDER BY model NULLS LAST"
)
_NUMBERS = 16 * 32 + 32 + 32 + 1
"""Those that the model has."""


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


def rows_of(target: Target, rank: int, sql: str = _ROWS) -> list[dict[str, Any]]:
    """What is told of a rank: of its steps, unless something else is asked."""
    done = target.run(f"rank:{rank}", "query", sql, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_steps_are_those_of_the_engine(stage: int, tmp_path: Path) -> None:
    """Losses, rates, micro-batches and samples; times against the script's own clock.

    Also what is told of the parameters and of what trains them.
    """
    with job(stage, tmp_path) as ranks:
        said = ranks[0].run("-t", "all", "doctor", "--check", "likely")
        assert said.returncode == 0, said.stdout  # before they have stood still for long
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
            check_parameters(ranks[0], rank, is_cut=stage > 0)


def check_parameters(target: Target, rank: int, *, is_cut: bool) -> None:
    """Those of the engine are the optimizer's as in any training, or this rank has a part of all.

    Adam keeps two numbers for each, and one for each tensor.
    """
    of_model, *parts = rows_of(target, rank, _PARAMETERS)
    assert (of_model["model"], of_model["tensors"], of_model["numel"]) == ("engine", 4, _NUMBERS)
    (group,) = rows_of(target, rank, "FROM python.optimizers")
    if not is_cut:
        assert (of_model["optimizers"], parts) == (4, [])
        assert (group["tensors"], group["parameters"]) == (4, _NUMBERS)
    else:
        (part,) = parts
        assert (of_model["optimizers"], of_model["state_bytes"]) == (0, 0)
        assert (part["model"], part["tensors"], part["optimizers"]) == (None, 1, 1)
        assert part["numel"] == group["parameters"]
        assert 0 <= _SIZE * part["numel"] - _NUMBERS < 8  # as many for each rank
    assert group["state_bytes"] == 8 * group["parameters"] + 4 * group["tensors"]
