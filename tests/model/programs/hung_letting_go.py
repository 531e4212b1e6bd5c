"""Trains a little, and then hangs in the midst of letting go of a gradient."""

from __future__ import annotations

import threading
import weakref

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
assert model.bias.grad is not None
told = weakref.ref(model.bias.grad, lambda _: threading.Event().wait())
print("ready", flush=True)
model.bias.grad = None
