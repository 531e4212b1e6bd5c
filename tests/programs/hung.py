"""Makes two training steps, prints `ready`, and hangs in the way its argument names."""

from __future__ import annotations

import ctypes
import sys
import threading
import time

import torch


def sleep() -> None:
    time.sleep(600)


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()


def gil() -> None:
    """A C call that keeps the interpreter lock for ever."""
    ctypes.PyDLL(None).sleep(600)


def spin() -> None:
    while True:
        pass


class Stuck(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(600)
        return x


class StuckBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        time.sleep(600)
        return grad


def forward() -> None:
    Stuck()(torch.ones(1))


def backward() -> None:
    StuckBackward.apply(model(torch.ones(2))).sum().backward()


if __name__ == "__main__":
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
    print("ready", flush=True)
    globals()[sys.argv[1]]()
