"""Times steps of a small model, recorded and not in turn; prints microseconds per step.

The clock is the thread's processor time. What recording adds to such a step is mostly what is done
once per step. Between two of them other memory is written, as a model's own work would, so that the
caches have forgotten what recording needs.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from probing.agent import lifecycle
from probing.settings import Settings
from tests.benchmarks.measures import measure_in_turn

STEPS = 64
_BEFORE = {"recorded": 40, "paused": 4}
"""Steps that are not counted, of each kind: the first of a recording are all timed."""
_SWEPT_BYTES = 8 << 20


def make_step() -> Callable[[], None]:
    """A step of three small modules and one optimizer."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batch = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    return step


def make_fed_step() -> Callable[[], None]:
    """The same with a loader that never ends, and with clipping."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dataset = TensorDataset(torch.randn(1024, 8))
    batches = itertools.chain.from_iterable(itertools.repeat(DataLoader(dataset, batch_size=4)))

    def step() -> None:
        (batch,) = next(batches)
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main(rounds: int) -> dict[str, tuple[float, ...]]:
    """Measure."""
    torch.manual_seed(0)
    training = lifecycle.start(Settings.from_env(os.environ)).training
    step, swept = make_step(), torch.zeros(_SWEPT_BYTES // 4)

    def took(way: str, *, is_swept: bool) -> float:
        for _ in range(_BEFORE[way]):
            step()
        spent = 0
        for _ in range(STEPS):
            if is_swept:
                swept.add_(1.0)
            start = time.thread_time_ns()
            step()
            spent += time.thread_time_ns() - start
        return spent / STEPS * 1e-3

    def measured(way: str, *, is_swept: bool) -> Callable[[], float]:
        def measure() -> float:
            if way == "recorded":
                training.start()
            found = took(way, is_swept=is_swept)
            training.pause()
            return found

        return measure

    kinds = [(way, is_swept) for is_swept in (True, False) for way in ("recorded", "paused")]
    training.pause()
    things = [measured(way, is_swept=is_swept) for way, is_swept in kinds]
    values = measure_in_turn(rounds, *things)
    if training.problems():
        raise RuntimeError(f"the recorder gave up: {training.problems()}")
    names = [f"{way}, caches swept" if is_swept else f"{way}, in a loop" for way, is_swept in kinds]
    return dict(zip(names, values, strict=True))


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
