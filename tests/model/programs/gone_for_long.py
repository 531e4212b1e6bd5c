"""Trains a model in each of two threads, one of which mostly has no gradients."""

from __future__ import annotations

import threading
import time

import torch
from torch import nn

torch.set_num_threads(1)


def train(model: nn.Module, without_s: float, trained: threading.Event) -> None:
    """Train a model for ever, and stay so long without gradients in each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        optimizer.zero_grad()
        time.sleep(without_s)
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        trained.set()


for outputs, without_s in ((2, 0.001), (1, 0.2)):
    trained = threading.Event()
    whole = nn.Linear(4, outputs), without_s, trained
    threading.Thread(target=train, args=whole, daemon=True).start()
    trained.wait()
print("ready", flush=True)
threading.Event().wait()
