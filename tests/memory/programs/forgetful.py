"""Trains on samples that a worker makes, which keeps a megabyte for each of the first hundreds."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

_MOST = 300


class Forgetful(Dataset[Tensor]):
    """Keeps something of each sample."""

    def __init__(self) -> None:
        self.seen: list[bytearray] = []

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> Tensor:
        if len(self.seen) < _MOST:
            self.seen.append(bytearray(b"x" * (1 << 20)))
        return torch.full((4,), float(number % 7))


if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in DataLoader(Forgetful(), batch_size=4, num_workers=1):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.05)
