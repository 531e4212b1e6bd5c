"""How much slower models train with everything on that is on by default."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, bootstrap_median, scaled, slowdowns
from .processes import run_program, temporary_home

_BUDGET_S = 180.0
_MODELS = {"gpt": "GPT", "cnn": "residual network"}


def measure(effort: float) -> Iterator[Measure]:
    """Blocks of steps with the recording paused and going, in turn in one process each."""
    for model, name in _MODELS.items():
        yield from _measure(model, name, effort)


def _measure(model: str, name: str, effort: float) -> Iterator[Measure]:
    """One model."""
    with temporary_home() as home:
        found = run_program("training_ab", home, model=model, budget_s=_BUDGET_S * effort)
    for clock, must in (("wall", 1.0), ("cpu", None)):
        values = slowdowns(found["recorded"][clock], found["paused"][clock])
        yield Measure(
            what=f"{name}: slowdown, {'wall' if clock == 'wall' else 'processor'} time",
            unit="%",
            values=values,
            must=must,
            aim=None if must is None else 0.0,
            interval=bootstrap_median(values),
            note=f"{len(values)} pairs of blocks of {found['steps']} steps" if must else "",
        )
    yield Measure(
        what=f"{name}: step, recording paused",
        unit="ms",
        values=scaled(found["paused"]["wall"], 1e3 / found["steps"]),
    )
    yield Measure(
        what=f"{name}: recorded rows per step",
        unit="rows",
        values=(found["rows"] / found["recorded_steps"],),
    )
