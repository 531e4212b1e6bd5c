"""What the recorder adds to a module call, beside what plain forward hooks add."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, differences, rounds_for, scaled
from .processes import run_program, temporary_home


def measure(effort: float) -> Iterator[Measure]:
    """Processor time per call, in a process that does nothing else."""
    with temporary_home() as home:
        found = run_program("module_calls", home, rounds=rounds_for(30, effort))
    recorder = differences(found["recorded"], found["bare"])
    hooks = differences(found["hooked"], found["bare"])
    yield Measure(
        what="recorder, per module call over the bare call",
        unit="us",
        values=scaled(recorder, 1e-3),
        must=1.0,
        aim=0.6,
    )
    yield Measure(
        what="recorder / plain forward hooks",
        unit="x",
        values=tuple(a / b for a, b in zip(recorder, hooks, strict=True)),
        must=0.6,
    )
    yield Measure(
        what="plain forward hooks, per module call over the bare call",
        unit="us",
        values=scaled(hooks, 1e-3),
    )
    for name, what in (
        ("appending", "a wrapper that appends a tuple, the same"),
        ("packing", "a wrapper that packs one row, the same"),
        ("packing_twice", "a wrapper that packs a row at entry and its end at exit, the same"),
    ):
        added = differences(found[name], found["bare"])
        yield Measure(what=what, unit="us", values=scaled(added, 1e-3))
    yield Measure(what="bare module call", unit="us", values=scaled(found["bare"], 1e-3))
    yield Measure(
        what="call of a Python function", unit="us", values=scaled(found["function"], 1e-3)
    )
