"""Trains a model in blocks of steps, every module's backward pass hooked and none, in turn."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

from probing.agent import lifecycle
from probing.agent.recording.no_training import NoTraining
from probing.settings import Settings

STEPS = 3
"""Steps of a block; one more before them is not counted."""


def main(model: str, budget_s: float) -> dict[str, Any]:
    """Train for so many seconds, and at least four pairs of blocks.

    Args:
        model: The module beside this one that makes it.
    """
    make_stepper = import_module(f"{__package__}.{model}").make_stepper  # torch comes with it
    training = lifecycle.start(Settings.from_env(os.environ)).training
    step = make_stepper()
    for _ in range(5):
        step()
    assert not isinstance(training, NoTraining)
    budget = training._budget
    backward = budget._backward
    training._progress.on_step = lambda *_: None  # the budget chooses no more
    every = {key: budget._make(key) for key in budget._hookable()}
    found: dict[str, list[float]] = {"bare": [], "hooked": [], "spent": []}

    def run_block(name: str) -> None:
        backward.hooked.clear()
        if name == "hooked":
            backward.hooked.update(every)
        step()
        start, spent = time.thread_time(), backward.spent_ns
        for _ in range(STEPS):
            step()
        found[name].append(time.thread_time() - start)
        if name == "hooked":
            found["spent"].append((backward.spent_ns - spent) * 1e-9)

    end, pairs = time.monotonic() + budget_s, 0
    while pairs < 4 or time.monotonic() < end:
        for name in ("bare", "hooked") if pairs % 2 == 0 else ("hooked", "bare"):
            run_block(name)
        pairs += 1
    if training.problems():
        raise RuntimeError(f"the recorder gave up: {training.problems()}")
    return {**found, "steps": STEPS, "calls": budget._calls_of(every)}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
