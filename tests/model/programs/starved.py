"""Trains on samples that take long to be made."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[Tensor]):
    """Sleeps over each sample."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> Tensor:
        time.sleep(0.1)
        return torch.full((4,), float(number % 7))


if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in DataLoader(Slow(), batch_size=4):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
