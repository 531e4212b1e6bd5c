"""Fails within a model: ``backward``, ``chained`` or in a ``thread``."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch
from torch import nn


class Failing(torch.autograd.Function):
    """A function whose backward pass fails."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        """Change nothing."""
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        """Fail."""
        raise ValueError("no gradient")


class Inner(nn.Module):
    """Fails as it is told to."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Fail forwards or backwards."""
        if sys.argv[1] == "backward":
            return Failing.apply(value)
        raise ValueError("no output")


class Outer(nn.Module):
    """Calls it, two modules deep."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), Inner())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Turn what comes from inside into another exception where that is asked for."""
        if sys.argv[1] != "chained":
            return self.layers(value)
        try:
            return self.layers(value)
        except ValueError as error:
            raise RuntimeError("the model failed") from error


def work() -> None:
    """One step that is never finished."""
    model = Outer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()


if sys.argv[1] == "thread":
    worker = threading.Thread(target=work, name="worker")
    worker.start()
    worker.join()
else:
    work()
