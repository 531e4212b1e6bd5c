"""How much slower models train with everything on that is on by default."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, bootstrap_median, rounds_for, scaled, slowdowns
from .processes import run_program, temporary_home

_BUDGET_S = 180.0
_PROCESSES = 4
"""Where things come to lie in memory differs from one process to the next, and with it the cost."""
_MODELS = {"gpt": "GPT", "cnn": "residual network"}


def measure(effort: float) -> Iterator[Measure]:
    """Blocks of steps with the recording paused and going, in turn in each of some processes."""
    for model, name in _MODELS.items():
        yield from _measure(model, name, effort)


def _measure(model: str, name: str, effort: float) -> Iterator[Measure]:
    """One model."""
    processes = min(_PROCESSES, rounds_for(_PROCESSES, effort, least=1))
    budget_s = _BUDGET_S * effort / processes
    runs = []
    for _ in range(processes):
        with temporary_home() as home:
            runs.append(run_program("training_ab", home, model=model, budget_s=budget_s))
    steps = runs[0]["steps"]
    for clock, must in (("wall", 1.0), ("cpu", None)):
        pairs = [slowdowns(run["recorded"][clock], run["paused"][clock]) for run in runs]
        values = tuple(value for of_one in pairs for value in of_one)
        yield Measure(
            what=f"{name}: slowdown, {'wall' if clock == 'wall' else 'processor'} time",
            unit="%",
            values=values,
            must=must,
            aim=None if must is None else 0.0,
            interval=bootstrap_median(values),
            note=f"{len(values)} pairs of blocks of {steps} steps" if must else "",
        )
    yield Measure(
        what=f"{name}: what is done once per step, by its own clocks",
        unit="ms",
        values=tuple(s * 1e3 for run in runs for s in run["recorded"]["per_step"]),
        must=0.06,
        aim=0.02,
    )
    yield Measure(
        what=f"{name}: step, recording paused",
        unit="ms",
        values=tuple(ms for run in runs for ms in scaled(run["paused"]["wall"], 1e3 / steps)),
    )
    yield Measure(
        what=f"{name}: recorded rows per step",
        unit="rows",
        values=tuple(run["rows"] / run["recorded_steps"] for run in runs),
    )
