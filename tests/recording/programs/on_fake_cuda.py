"""Trains on a made-up CUDA; prints what it saw as one line of JSON, then `ready`.

``train``: eager steps, a capture of a whole step while numbers of steps before are on their way,
replays, eager steps again. ``fork``: epochs with forking loaders, and children that end as programs
do. ``save``: checkpoints while the device is busy. ``allocator NAME``: a few steps with one that
tells little. ``other KIND``: eager steps on a device of another maker, ``xpu`` or ``rocm``.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import threading
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.harness.fake_cuda import FakeCuda
from tests.harness.fake_torch import install

DEVICE = 1
LAYER_S, WARM, EAGER, REPLAYS = 1e-3, 40, 12, 8
LATE, TOO_LATE = 400, 1000
CUDA = FakeCuda(home=DEVICE)


class Layer(nn.Linear):
    """One that keeps the device busy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CUDA.work(LAYER_S)
        return super().forward(x)


class Training:
    """The program's own: the device is a step behind."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(Layer(8, 8), nn.ReLU(), Layer(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.losses: list[Any] = []

    def step(self, x: torch.Tensor) -> None:
        """One step, without a word to the host."""
        loss = self.model(x).square().mean()
        loss.backward()
        CUDA.work(2 * LAYER_S)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach().clone())

    def steps(self, number: int) -> None:
        """Some of them; when one has been queued, the device has done the one before."""
        for _ in range(number):
            self.step(torch.randn(4, 8))
            CUDA.advance(4 * LAYER_S)


def train() -> dict[str, Any]:
    """See the module."""
    CUDA.start()
    training = Training()
    training.steps(WARM)
    before = CUDA.counts()
    training.steps(EAGER)
    steady = CUDA.counts() - before
    torch.cuda.set_device(DEVICE)
    CUDA.work(0.5)  # so the last numbers are still on their way
    training.step(torch.randn(4, 8))
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.Stream(torch.device("cuda", DEVICE)):
        graph.capture_begin()
        training.step(torch.randn(4, 8))
        training.step(torch.randn(4, 8))
        graph.capture_end()
    captured = [entry.name for entry in CUDA.in_captures()]
    for _ in range(REPLAYS):
        graph.replay()
        CUDA.advance(1.0)
    training.steps(3)
    waits = [entry.name for entry in CUDA.waits()]
    CUDA.finish()
    return {
        "losses": [float(loss) for loss in training.losses],
        "captured": captured,
        "waits": waits,
        "contexts": sorted(CUDA.contexts),
        "steady": dict(steady),
    }


def fork() -> dict[str, Any]:
    """See the module."""
    CUDA.start()
    training = Training()
    data = TensorDataset(torch.randn(12, 8))
    for _ in range(3):
        for (x,) in DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork"):
            training.step(x)
            CUDA.advance(LAYER_S)  # so some of it is always under way
        for (x,) in DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork"):
            with torch.no_grad():
                training.model(x)
    children = []
    ends: Any
    for ends in (os._exit, sys.exit):
        pid = os.fork()
        if not pid:
            gc.collect()
            ends(0)
        children.append(os.waitpid(pid, 0)[1])
    return {"children": children, "contexts": sorted(CUDA.contexts)}


def allocator(name: str) -> dict[str, Any]:
    """See the module."""
    CUDA.allocator = name
    CUDA.start()
    training = Training()
    training.steps(EAGER)
    return {"observed": CUDA.calls("attach_observer")}


def late() -> dict[str, Any]:
    """See the module."""
    import probing

    CUDA.start()
    training = Training()
    training.steps(WARM)
    for steps in (LATE, TOO_LATE):
        CUDA.work(1e5)
        for _ in range(steps):
            training.step(torch.randn(4, 8))
            probing.metric(loss=training.losses[-1] * 2)
        waits = [entry.name for entry in CUDA.waits()]
        CUDA.finish()
        training.steps(WARM)
        for _ in range(8):
            probing.metric(others=1.0)
    return {"losses": [float(loss) for loss in training.losses], "waits": waits}


class Meanwhile:
    """Something to be saved, during which the device goes on."""

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        CUDA.advance(1.0)
        return int, ()


def save() -> dict[str, Any]:
    """See the module."""
    CUDA.start()
    training = Training()
    training.steps(EAGER)
    waits = []
    for more in ({}, {"meanwhile": Meanwhile()}):
        CUDA.work(0.5)
        before = len(CUDA.waits())
        torch.save({**dict.fromkeys(training.model.state_dict()), **more}, "checkpoint.pt")
        waits += [entry.name for entry in CUDA.waits()[before:]]
    with torch.no_grad():
        next(training.model.parameters())[0, 0] = math.inf
    torch.save(
        {**dict.fromkeys(training.model.state_dict()), "meanwhile": Meanwhile()}, "checkpoint.pt"
    )
    return {"waits": waits}


def other(kind: str) -> dict[str, Any]:
    """See the module."""
    CUDA.start()
    training = Training()
    training.steps(EAGER)
    waits = [entry.name for entry in CUDA.waits()]
    CUDA.finish()
    losses = [float(loss) for loss in training.losses]
    return {"losses": losses, "waits": waits, "contexts": sorted(CUDA.contexts)}


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if arguments == ["xpu"]:
        CUDA.kind = "xpu"
    elif arguments == ["rocm"]:
        torch.version.hip = "6.4"
    install(CUDA)
    scenes: dict[str, Any] = {
        "train": train,
        "fork": fork,
        "allocator": allocator,
        "other": other,
        "save": save,
        "late": late,
    }
    seen = scenes[what](*arguments)
    print(json.dumps(seen), flush=True)
    assert threading.current_thread() is threading.main_thread()
    print("ready", flush=True)
    time.sleep(600)
