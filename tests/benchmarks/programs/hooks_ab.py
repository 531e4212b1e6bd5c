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


def hook(backward: Any, modules: dict[int, Any], *, is_on: bool) -> None:
    """Have these modules hooked, or none; the C part hooks those that it meets, too."""
    backward.hooked.clear()
    backward.hooked.update(modules)
    if backward.in_c is not None:
        backward.in_c.run_backward(is_on=is_on)


def spent_ns(backward: Any) -> float:
    """What hooks have taken so far, by their own clocks; in C one in so many has one."""
    if backward.in_c is None:
        return float(backward.spent_ns)
    _, hooks, timed, took = backward.in_c.backward_costs()
    return float(hooks * took / max(timed, 1))


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
    budget = training._sources.calls.budget
    backward = budget._backward
    training._sources.progress.on_step = lambda *_: None  # the budget chooses no more
    every = {key: budget._make(key) for key in budget._hookable()}
    found: dict[str, list[float]] = {"bare": [], "hooked": [], "spent": []}

    def run_block(name: str) -> None:
        hook(backward, every if name == "hooked" else {}, is_on=name == "hooked")
        step()
        start, spent = time.thread_time(), spent_ns(backward)
        for _ in range(STEPS):
            step()
        found[name].append(time.thread_time() - start)
        if name == "hooked":
            found["spent"].append((spent_ns(backward) - spent) * 1e-9)

    end, pairs = time.monotonic() + budget_s, 0
    while pairs < 4 or time.monotonic() < end:
        for name in ("bare", "hooked") if pairs % 2 == 0 else ("hooked", "bare"):
            run_block(name)
        pairs += 1
    if training.problems():
        raise RuntimeError(f"the recorder gave up: {training.problems()}")
    return {**found, "steps": STEPS, "calls": len(every)}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
