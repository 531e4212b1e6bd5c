"""Trains a small model in a loop whose every step fails, and goes on as if nothing were.

The argument says where: `forward` in a module's call, `loss` between the model and the backward
pass. `evaluation` has an optimizer, and evaluates alone; `inference` has none, and calls fail.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAUSE_S = 0.002


class Net(nn.Module):
    """Two layers that do not fit where the way says so."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


def main() -> None:
    way = sys.argv[1]
    torch.manual_seed(0)
    model = Net(12 if way in {"forward", "inference"} else 16)
    optimizer = None if way == "inference" else torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(128, 8), torch.randint(0, 2, (128,)))
    step = 0
    while True:
        for inputs, labels in DataLoader(data, batch_size=8):
            step += 1
            print("round", step, flush=True)
            time.sleep(PAUSE_S)
            try:
                with torch.set_grad_enabled(way != "evaluation"):
                    outputs = model(inputs)
                if optimizer is None or way == "evaluation":
                    continue
                loss = nn.functional.cross_entropy(outputs, labels[:3])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            except Exception:  # noqa: BLE001 - this is what the test is about
                continue


main()
