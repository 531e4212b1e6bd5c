"""Trains two layers beside a made-up accelerator whose clock goes on by one second at each mark."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
from torch import nn

import probing
from probing.agent.recording import training
from tests.harness.accelerators import NoAccelerator

MARKS_KEPT = 3


class Seconds:
    """A time that is known once three steps' marks have been set since."""

    def __init__(self, first: float, last: float) -> None:
        self._first, self._last = first, last

    def is_here(self) -> bool:
        """Whether the device has come past it."""
        return Ticking.now > self._last + MARKS_KEPT

    def value(self) -> float:
        """How far the marks are apart."""
        assert self.is_here()
        return self._last - self._first


class Second(float):
    """A mark."""

    def is_here(self) -> bool:
        """The device is never done before the host."""
        return False


class Ticking(NoAccelerator):
    """Marks are numbers of seconds."""

    now = 0.0
    seconds = itertools.count(1)

    def mark(self, device: Any = None) -> Second:
        """The next second."""
        Ticking.now = float(next(self.seconds))
        return Second(Ticking.now)

    def between(self, first: Any, last: Any) -> Seconds:
        """As the marks say."""
        return Seconds(first, last)


if __name__ == "__main__":
    vars(training)["Accelerator"] = Ticking
    probing.start()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print("ready", flush=True)
    time.sleep(600)
