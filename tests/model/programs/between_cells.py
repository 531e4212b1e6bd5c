"""Trains a little, and then waits, as a notebook does between cells."""

from __future__ import annotations

import threading

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
print("ready", flush=True)
threading.Event().wait()
