"""How the recorded backward passes of modules agree with torch.profiler, on the same steps."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure
from .processes import run_program, temporary_home

_LEAST_S = 1e-3


def measure(effort: float) -> Iterator[Measure]:
    """Both at once in one process; modules that take more than a millisecond per step."""
    for model, name in (("gpt", "GPT"), ("cnn", "residual network")):
        with temporary_home() as home:
            found = run_program("backward_rows", home, model=model)
        ours, torchs = found["ours"], found["torchs"]
        large = [m for m, took in torchs.items() if took / found["steps"] > _LEAST_S]
        errors = [100 * abs(ours.get(m, 0.0) / torchs[m] - 1) for m in large]
        yield Measure(
            what=f"{name}: backward of a module, off torch.profiler's",
            unit="%",
            values=tuple(errors),
            must=5.0,
            note=f"{len(large)} modules over 1 ms, {found['steps']} steps",
        )
