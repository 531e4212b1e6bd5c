"""Times module calls: bare, recorded, and with plain forward hooks; prints ns per call.

The clock is the thread's processor time, so that others on the machine disturb little.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from probing.agent import lifecycle
from probing.settings import Settings
from tests.benchmarks.measures import measure_in_turn

from . import bare_wrappers

LEAVES = 1000
CALLS = 20


class Leaf(nn.Module):
    """Does nothing, so that the call is all there is."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the argument."""
        return x


class Root(nn.Module):
    """Calls many leaves, one after the other."""

    def __init__(self, leaves: int) -> None:
        super().__init__()
        self.leaves = nn.ModuleList(Leaf() for _ in range(leaves))
        self.weight = nn.Parameter(torch.zeros(1))  # what makes it a model to the recorder

    def forward(self, x: Tensor) -> Tensor:
        """Call every leaf."""
        for leaf in self.leaves:
            x = leaf(x)
        return x


def same(x: Tensor) -> Tensor:
    """What a bare function call is measured with."""
    return x


class Timing:
    """The things that are measured in turn, each as ns per call."""

    def __init__(self, training: Any) -> None:
        self._training = training
        self._root = Root(LEAVES)
        self._x = torch.zeros(1)

    def bare(self) -> float:
        """Module calls that nobody watches."""
        return self._time_calls()

    def recorded(self) -> float:
        """Module calls with the whole recorder."""
        self._training.start()
        try:
            return self._time_calls()
        finally:
            self._training.pause()

    def hooked(self) -> float:
        """Module calls with two global hooks, each of which appends a tuple to a list."""
        seen: list[tuple[nn.Module, int]] = []
        append, clock = seen.append, time.perf_counter_ns

        def before(module: nn.Module, args: Any) -> None:
            append((module, clock()))

        def after(module: nn.Module, args: Any, result: Any) -> None:
            append((module, clock()))

        handles = [register_module_forward_pre_hook(before), register_module_forward_hook(after)]
        try:
            return self._time_calls()
        finally:
            for handle in handles:
                handle.remove()

    def within(self, wrapper: Callable[[], AbstractContextManager[None]]) -> float:
        """Module calls through a wrapper that does next to nothing."""
        with wrapper():
            return self._time_calls()

    def function(self) -> float:
        """Calls of a Python function."""
        x = self._x
        started = time.thread_time_ns()
        for _ in range(LEAVES * CALLS):
            same(x)
        return (time.thread_time_ns() - started) / (LEAVES * CALLS)

    def _time_calls(self) -> float:
        root, x = self._root, self._x
        root(x)  # what is new after a change is learnt now
        started = time.thread_time_ns()
        for _ in range(CALLS):
            root(x)
        return (time.thread_time_ns() - started) / (LEAVES * CALLS)


def main(rounds: int) -> dict[str, tuple[float, ...]]:
    """Measure."""
    torch.set_grad_enabled(False)
    agent = lifecycle.start(Settings.from_env(os.environ))
    agent.training.pause()
    timing = Timing(agent.training)
    things: dict[str, Callable[[], float]] = {
        "bare": timing.bare,
        "recorded": timing.recorded,
        "hooked": timing.hooked,
        "appending": lambda: timing.within(bare_wrappers.appending),
        "packing": lambda: timing.within(bare_wrappers.packing),
        "packing_twice": lambda: timing.within(bare_wrappers.packing_twice),
        "function": timing.function,
    }
    measure_in_turn(2, *things.values())  # warm up
    values = measure_in_turn(rounds, *things.values())
    if agent.training.problems():
        raise RuntimeError(f"the recorder gave up: {agent.training.problems()}")
    return dict(zip(things, values, strict=True))


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
