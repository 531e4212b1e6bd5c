"""Ends while other threads are in the midst of module calls, which do not end by themselves."""

from __future__ import annotations

import threading
import time

import torch
from torch import nn

THREADS = 2
inside = threading.Semaphore(0)


class Says(nn.Module):
    """Says that a thread is inside of it, and is in no hurry to leave."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside.release()
        for _ in range(10**9):
            x = self.inner(x)
            time.sleep(0.001)
        return x


model, example = nn.Sequential(Says()), torch.ones(2)
for _ in range(THREADS):
    threading.Thread(target=model, args=(example,), daemon=True).start()
for _ in range(THREADS):
    assert inside.acquire(timeout=60)
print("done", flush=True)
