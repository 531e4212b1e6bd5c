"""Trains for ever, and takes its time to let go of each gradient, whose end it has itself told."""

from __future__ import annotations

import time
import weakref

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
print("ready", flush=True)
while True:
    for parameter in model.parameters():
        if parameter.grad is not None:
            told = weakref.ref(parameter.grad, lambda _: time.sleep(0.01))
            parameter.grad = None
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
