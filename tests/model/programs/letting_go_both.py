"""Trains a model in each of two threads, which take their time to let go of each gradient."""

from __future__ import annotations

import threading
import time
import weakref

import torch
from torch import nn

torch.set_num_threads(1)


def train(model: nn.Module) -> None:
    """Train a model for ever."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        for parameter in model.parameters():
            if parameter.grad is not None:
                told = weakref.ref(parameter.grad, lambda _: time.sleep(0.01))
                parameter.grad = None
                del told
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()


other = nn.Linear(4, 2)
threading.Thread(target=train, args=(other,), name="other", daemon=True).start()
model = nn.Linear(4, 1)
print("ready", flush=True)
train(model)
