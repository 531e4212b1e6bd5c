"""Trains a model under torch's profiler and the recorder at once; prints both views of each module.

Torch's view: the nodes that a module's forward pass has made, by their sequence numbers, and what
the engine took to evaluate each of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import probing
from probing.agent import lifecycle
from probing.settings import Settings

_STEPS = 6
_NODE = "autograd::engine::evaluate_function: "
_MARK = "module:"


def mark_modules(model: nn.Module) -> None:
    """Have every call of a module appear in the profile by its name."""
    for name, module in model.named_modules():
        if not name:
            continue
        ranges: list[Any] = []

        def before(*_: Any, name: str = name, ranges: list[Any] = ranges) -> None:
            ranges.append(torch.autograd.profiler.record_function(_MARK + name))
            ranges[-1].__enter__()

        def after(*_: Any, ranges: list[Any] = ranges) -> None:
            ranges.pop().__exit__(None, None, None)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)


def torchs_view(events: Any) -> dict[str, float]:
    """Seconds that the nodes of each module took, over all steps."""
    marks = [e for e in events if e.name.startswith(_MARK)]
    made: dict[int, list[str]] = defaultdict(list)
    ops = sorted(
        ((e.time_range.start, e.sequence_nr) for e in events if e.sequence_nr >= 0
         and not e.name.startswith(_NODE)),
    )  # fmt: skip
    starts = [start for start, _ in ops]
    from bisect import bisect_left, bisect_right

    for mark in marks:
        first = bisect_left(starts, mark.time_range.start)
        last = bisect_right(starts, mark.time_range.end)
        for number in {sequence for _, sequence in ops[first:last]}:
            made[number].append(mark.name.removeprefix(_MARK))
    took: dict[str, float] = defaultdict(float)
    for event in events:
        if event.name.startswith(_NODE):
            for name in made.get(event.sequence_nr, ()):
                took[name] += event.time_range.elapsed_us() * 1e-6
    return dict(took)


def main(model: str) -> dict[str, Any]:
    """Train, and compare."""
    agent = lifecycle.start(Settings.from_env({**os.environ, "PROBING_OVERHEAD": "100"}))
    step = import_module(f"{__package__}.{model}").make_stepper()
    for _ in range(3):
        step()
    found = agent.training.names()["model"]
    mark_modules(found)
    step()
    process = probing.connect(os.getpid())
    first = agent.training.step()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(_STEPS):
            step()
    rows = process.query(
        "SELECT module, sum(duration) AS took FROM python.torch_trace"
        f" WHERE stage = 'backward' AND depth > 0 AND step >= {first} AND step < {first} + {_STEPS}"
        " GROUP BY module"
    ).to_pylist()
    return {
        "steps": _STEPS,
        "ours": {row["module"]: row["took"] for row in rows},
        "torchs": torchs_view(profiler.events()),
    }


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
