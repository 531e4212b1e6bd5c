"""Trains on a stream that two workers iterate, of which neither asks which it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset[Tensor]):
    """The same samples for whoever iterates."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.arange(96.0).reshape(24, 4)


def seed(number: int) -> None:
    """Has the dataset of a worker know which it is."""
    torch.manual_seed(number)


def main(*, tells: bool) -> None:
    """Train until somebody says stop."""
    options: dict[str, Any] = {"worker_init_fn": seed} if tells else {}
    batches = DataLoader(Lines(), batch_size=4, num_workers=2, persistent_workers=True, **options)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    print("ready", flush=True)
    while not Path("stop").exists():
        for batch in batches:
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        time.sleep(0.05)


if __name__ == "__main__":
    main(tells="tells" in sys.argv[1:])
