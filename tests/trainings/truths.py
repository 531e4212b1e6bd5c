"""Reads what a script has written of itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step as the script counts it.

    Attributes:
        losses: What it would print, by name; "" where it has one loss.
        means: The mean over what was accumulated, where that is something else.
        rates: Learning rates by the variable that holds the optimizer; "" where there is one.
        norm: What it clipped by.
        samples: How many samples it learnt from, where it says so.
        phases: Seconds by phase.
        start_ns: When the step before ended, since the epoch.
        end_ns: When this one ended.
        number: The script's own number of the step.
    """

    losses: Mapping[str, float]
    means: Mapping[str, float]
    rates: Mapping[str, float]
    norm: float | None
    samples: int | None
    phases: Mapping[str, float]
    start_ns: int
    end_ns: int
    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All that one process has written.

    Attributes:
        pid: The process.
        models: By the variable that holds it: `class`, `parameters`, `modules` and `layers`.
        steps: The steps that have ended.
        checksum: Of losses and parameters; None while it runs.
        held: Bytes by category, as they were when they were counted last.
        peaks: The most bytes in use in each of a few steps, where the script was to count them.
    """

    pid: int
    models: Mapping[str, Mapping[str, Any]]
    steps: Sequence[Step]
    checksum: str | None
    held: Mapping[str, int]
    peaks: Sequence[int]

    @property
    def parameters(self) -> set[str]:
        """The names of everything that is learnt."""
        return {name for model in self.models.values() for name in model["parameters"]}


def read_account(path: Path) -> Account | None:
    """Read what is in the file by now; None where nothing is."""
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # behind the last newline: half a row
    rows = [json.loads(line) for line in lines]
    if not rows:
        return None
    models: dict[str, Any] = {}
    for row in rows:
        models.update(row.get("models", {}))
    return Account(
        pid=rows[0]["pid"],
        models=models,
        steps=[_step(row) for row in rows if "step" in row],
        checksum=next((row["checksum"] for row in rows if "checksum" in row), None),
        held=next((row["held"] for row in reversed(rows) if "held" in row), {}),
        peaks=next((row["peaks"] for row in rows if "peaks" in row), []),
    )


def _step(row: Mapping[str, Any]) -> Step:
    return Step(
        losses=_named(row["loss"]),
        means=_named(row.get("mean_loss")),
        rates=_named(row["lr"]),
        norm=row["norm"],
        samples=row.get("samples"),
        phases=row["phases"],
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        number=row.get("number", row["step"]),
    )


def _named(value: float | Mapping[str, float] | None) -> Mapping[str, float]:
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else {"": value}
