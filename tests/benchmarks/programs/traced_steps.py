"""Trains a model, or calls small modules, under whatever traces this process; prints the time.

A script of its own, run by path and in other environments too: it imports nothing of probing.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

_CALLS = 500
_WARM = 3


def make_calls() -> Callable[[], None]:
    """What calls many small modules."""
    torch = importlib.import_module("torch")
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(_CALLS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.zeros(2, 8)

    def call() -> None:
        model(x)
        optimizer.step()  # has nothing to do; it is what ends a step

    return call


def main(model: str, steps: int, *, profiled: bool) -> dict[str, Any]:
    """Run so many steps after a few that are not counted.

    Args:
        model: `gpt`, or `calls`.
        profiled: Whether torch.profiler records them.
    """
    step = make_calls() if model == "calls" else importlib.import_module(model).make_stepper()
    profiler: Any = contextlib.nullcontext()
    if profiled:
        profile = importlib.import_module("torch.profiler")
        profiler = profile.profile(activities=[profile.ProfilerActivity.CPU])
    with profiler:
        for _ in range(_WARM):
            step()
        start = time.thread_time()
        for _ in range(steps):
            step()
        took = time.thread_time() - start
    return {"step_s": took / steps, "calls": _CALLS if model == "calls" else None}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
