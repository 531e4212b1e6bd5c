"""Trains for ever, in steps of some seconds, in which it has no gradients but at the end."""

from __future__ import annotations

import time

import torch
from torch import nn

torch.set_num_threads(1)


class Slow(nn.Module):
    """Takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute, and wait."""
        time.sleep(3.0)
        result: torch.Tensor = self.layer(inputs)
        return result


model = Slow()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
print("ready", flush=True)
while True:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
