"""How much slower the bundled GPT trains with everything on that is on by default."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, bootstrap_median, scaled, slowdowns
from .processes import run_program, temporary_home

_BUDGET_S = 75.0


def measure(effort: float) -> Iterator[Measure]:
    """Blocks of steps with the recording paused and going, in turn in one process."""
    with temporary_home() as home:
        found = run_program("gpt_ab", home, budget_s=_BUDGET_S * effort)
    for clock, must in (("wall", 1.0), ("cpu", None)):
        values = slowdowns(found["recorded"][clock], found["paused"][clock])
        yield Measure(
            what=f"training slowdown, {'wall' if clock == 'wall' else 'processor'} time",
            unit="%",
            values=values,
            must=must,
            aim=None if must is None else 0.0,
            interval=bootstrap_median(values),
            note=f"{len(values)} pairs of blocks of {found['steps']} steps" if must else "",
        )
    yield Measure(
        what="training step, recording paused",
        unit="ms",
        values=scaled(found["paused"]["wall"], 1e3 / found["steps"]),
    )
    yield Measure(
        what="recorded rows per step",
        unit="rows",
        values=(found["rows"] / found["recorded_steps"],),
    )
