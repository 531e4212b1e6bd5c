"""Waits for a DataLoader's worker that never brings its second batch, one frame from the top."""

from __future__ import annotations

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

import probing


class Stuck(Dataset[torch.Tensor]):
    """Waits for ever once its first batch is read, as long as its reader lives."""

    def __init__(self) -> None:
        self.reader = os.getpid()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        while index >= 4 and os.getppid() == self.reader:
            time.sleep(0.2)
        return torch.zeros(2)


probing.start()
for _ in DataLoader(Stuck(), batch_size=4, num_workers=1, prefetch_factor=1):
    print("ready", flush=True)
