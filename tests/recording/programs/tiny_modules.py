"""Trains a model of many tiny modules and one large one; prints `ready` after some steps."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

STEPS = 40
LONG = {int(step) for step in os.environ.get("LONG_STEPS", "").split()}


class Tiny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tiny = nn.ModuleList(Tiny() for _ in range(2000))
        self.large = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.tiny:
            x = module(x)
        return self.large(x)


if __name__ == "__main__":
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(torch.ones(64, 256)).sum().backward()
        optimizer.step()
    print("ready", flush=True)
    step = STEPS
    while True:
        model(torch.ones(64, 256)).sum().backward()
        optimizer.step()
        step += 1
        time.sleep(1.0 if step in LONG else 0.01)
