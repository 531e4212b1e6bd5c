"""Trains with a loss of its own whose targets lack an axis, until the file `end` is there.

After its first step it prints `ready`.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor, nn


def squares(prediction: Tensor, target: Tensor) -> Tensor:
    """The mean of squared differences."""
    return (target - prediction).pow(2).mean()


def main() -> None:
    """Fit eight numbers a step."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        loss = squares(model(torch.randn(8, 4)), torch.randn(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            print("ready", flush=True)
        if Path("end").exists():
            break
        time.sleep(0.002)


main()
