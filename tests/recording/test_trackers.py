"""What a script logs to a tracker is on record as well, if that is asked for."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest

from probing.errors import BadSetting
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch

Program = Callable[..., Target]
TRACKERS = ("tensorboard", "wandb", "mlflow")


def logged(
    program: Program, tracker: str, **env: str
) -> tuple[list[list[float]], list[dict[str, Any]]]:
    """What a script has logged, and what is on record of it, each step's in one list."""
    target = program("logs", tracker, PROBING="1", **env)
    assert target.process.wait(2 * DEADLINE_S) == 0, target.output
    (line,) = [x for x in target.output.splitlines() if x.startswith("told ")]
    told: list[list[float]] = json.loads(line.removeprefix("told "))
    sql = "SELECT name, value, step FROM python.metrics ORDER BY seq"
    done = target.run(str(target.pid), "query", sql, "--format", "json")
    assert done.returncode == 0, done.stderr
    return told, json.loads(done.stdout)


@pytest.mark.nightly  # they are large
@pytest.mark.parametrize("tracker", TRACKERS)
def test_its_scalars_are_on_record(tracker: str, program: Program) -> None:
    """All of them, by their names, with the step that they were logged in, and nothing else."""
    assert importlib.util.find_spec(tracker), f"pip install -r tests/trackers.txt: no {tracker}"
    told, rows = logged(program, tracker, PROBING_METRICS_FROM=f" {tracker.upper()} ")
    losses = [row["value"] for row in rows if row["name"] == "loss"]
    rates = [row["value"] for row in rows if row["name"] in {"more.rate", "more/rate"}]
    assert [list(pair) for pair in zip(losses, rates, strict=True)] == [
        [pytest.approx(loss), pytest.approx(rate)] for loss, rate in told
    ]
    assert len(rows) == 2 * len(told)
    assert [row["step"] for row in rows] == [n for n in range(4, 12) for _ in range(2)]


def test_an_unknown_tracker_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(BadSetting, match="'comet' is not one of tensorboard, wandb, mlflow"):
        Settings.from_env({"PROBING_METRICS_FROM": "wandb,comet"})
