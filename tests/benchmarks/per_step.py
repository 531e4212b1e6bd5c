"""What is done once per step, of whatever size the model is."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, bootstrap_median, differences, rounds_for, scaled
from .processes import run_program, temporary_home

_MOST = {"plain": (103, 4_450), "fed": (197, 6_750)}
"""Functions and instructions of a step, by what makes it, that are the most; of Python 3.11."""
_PROCESSES = 3
"""Where things come to lie in memory differs from one process to the next, and with it the cost."""


def measure(effort: float) -> Iterator[Measure]:
    """Processor time of a step of three small modules, recorded less not recorded."""
    runs = []
    for _ in range(_PROCESSES):
        with temporary_home() as home:
            runs.append(run_program("small_steps", home, rounds=rounds_for(30, effort)))
    for kind, must in (("caches swept", 0.06), ("in a loop", None)):
        found = [differences(run[f"recorded, {kind}"], run[f"paused, {kind}"]) for run in runs]
        values = scaled([us for of_one in found for us in of_one], 1e-3)
        yield Measure(
            what=f"a step of three small modules, {kind}: what recording adds",
            unit="ms",
            values=values,
            must=must,
            interval=bootstrap_median(values),
        )
    yield from _counts()


def _counts() -> Iterator[Measure]:
    """How much of that Python does; the same on a busy machine, and of one process as of three."""
    for way, also in (("plain", ""), ("fed", ", with a loader and clipping")):
        with temporary_home() as home:
            rows = run_program("counted_steps", home, way=way).values()
        for place, what in enumerate(("Python functions called", "bytecode instructions")):
            yield Measure(
                what=f"the same{also}, {what} where modules go by Python",
                unit="",
                values=(sum(row[place] for row in rows),),
                must=_MOST[way][place],
            )
