"""Programs that train to their end, once without the agent and once with it, and their records."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import probing
from tests.harness.targets import DEADLINE_S, Target, start_program

Rows = list[dict[str, Any]]
PHASES = (
    *("data_wait", "to_device", "forward", "loss"),
    *("backward", "gradient_sync", "gradients", "optimizer", "other"),
)
NEAR = 1e-5
_VOLATILE = re.compile(r"[0-9.:]+|0x[0-9a-f]+")


class Run:
    """One rank of a program that has ended.

    Attributes:
        steps: What it printed of each step.
        ends: What it printed at its end: the digest of its parameters, and more.
        noise: What else it wrote, warnings among it, without the numbers in it.
    """

    def __init__(self, target: Target) -> None:
        assert target.process.wait(4 * DEADLINE_S) == 0, target.output
        lines = target.output.splitlines()
        told = [json.loads(line) for line in lines if line.startswith('{"')]
        self.steps = [facts for facts in told if "loss" in facts]
        self.ends = {name: v for facts in told if "loss" not in facts for name, v in facts.items()}
        self.noise = Counter(_VOLATILE.sub("#", line) for line in lines if line[:2] != '{"')
        self._target = target

    def problems(self) -> tuple[str, ...]:
        """What the agent could not do, by its card."""
        card = self._target.folder.read_card()
        assert card is not None
        return card.problems

    def ask(self, sql: str) -> Rows:
        """Rows of its record."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROBING_HOME", str(self._target.home))
            return probing.connect(self._target.pid).query(sql).to_pylist()

    def names(self, stage: str) -> set[str]:
        """The modules of the record's rows of a stage."""
        return {
            row["module"]
            for row in self.ask(
                f"SELECT DISTINCT module FROM python.torch_trace WHERE stage = '{stage}'"
            )
        }


class Pair:
    """The ranks of a program without the agent, and those with it."""

    def __init__(self, bare: list[Run], seen: list[Run]) -> None:
        self.bare = bare
        self.seen = seen

    def assert_same(self) -> None:
        """Losses, rates, norms and parameters are the same to the last bit; nothing new is said."""
        for bare, seen in zip(self.bare, self.seen, strict=True):
            assert seen.steps == bare.steps
            assert len(bare.steps) > 0
            assert seen.ends == bare.ends
            assert "digest" in bare.ends
            assert seen.noise - bare.noise == Counter()
            assert seen.problems() == ()

    def assert_recorded(self) -> None:
        """Each step's row says what the program said; the phases of a step add up to it."""
        for run in self.seen:
            rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
            assert len(rows) == len(run.steps)
            for row, facts in zip(rows, run.steps, strict=True):
                for name, value in facts.items():
                    near = pytest.approx(value, rel=NEAR) if type(value) is float else value
                    assert row[name] == near, (name, facts, row)
                parts = run.ask(f"FROM python.micro_batches WHERE step = {row['step']}")
                assert len(parts) == row["micro_batches"]
                assert sum(part["tokens"] for part in parts) == row["tokens"]
                spent = sum(row[f"{name}_s"] or 0.0 for name in PHASES)
                assert spent == pytest.approx(row["duration"])
                for name in ("forward", "backward", "optimizer"):
                    assert row[f"{name}_s"] > 0.0, (name, row)
            # Not in every step: the first begins with the call of the model, and some frameworks
            # fetch a batch ahead.
            assert any((row["data_wait_s"] or 0.0) > 0.0 for row in rows)


Runs = Callable[..., Pair]


def make_runs(folder: Callable[[], Path]) -> Runs:
    """What runs a way of a program in both forms, each only once.

    Args:
        folder: Makes a new empty one.
    """

    @functools.cache
    def runs(program: str, way: str, ranks: int = 1) -> Pair:
        return Pair(*(_run(program, way, ranks, folder(), PROBING=on) for on in "01"))

    return runs


def _run(program: str, way: str, ranks: int, folder: Path, **extra: str) -> list[Run]:
    """All ranks of a program, from start to end."""
    targets = []
    try:
        for rank in range(ranks):
            cwd = folder / str(rank)
            cwd.mkdir()
            if ranks > 1:
                extra |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
                extra |= {"MEETING": str(folder / "meeting")}
            targets.append(start_program(program, way, home=folder / "home", cwd=cwd, **extra))
        return [Run(target) for target in targets]
    finally:
        for target in targets:
            target.reap()
