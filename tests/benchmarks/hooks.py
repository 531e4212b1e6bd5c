"""What hooks on the backward pass cost a step, and how much of that their own clock sees."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, bootstrap_median, slowdowns
from .processes import run_program, temporary_home

_BUDGET_S = 60.0


def measure(effort: float) -> Iterator[Measure]:
    """Blocks of steps with no module hooked and with all of them, in turn in one process each."""
    for model, name in (("gpt", "GPT"), ("cnn", "residual network")):
        with temporary_home() as home:
            found = run_program("hooks_ab", home, model=model, budget_s=_BUDGET_S * effort)
        values = slowdowns(found["hooked"], found["bare"])
        yield Measure(
            what=f"{name}: slowdown by hooks on every module, thread's time",
            unit="%",
            values=values,
            interval=bootstrap_median(values),
            note=f"{len(values)} pairs of blocks of {found['steps']} steps",
        )
        pairs = zip(found["hooked"], found["bare"], found["spent"], strict=True)
        ratios = tuple((hooked - bare) / spent for hooked, bare, spent in pairs)
        yield Measure(
            what=f"{name}: what hooks cost / what their own clock says",
            unit="x",
            values=ratios,
            interval=bootstrap_median(ratios),
            note=f"{found['calls']} hooked modules",
        )
