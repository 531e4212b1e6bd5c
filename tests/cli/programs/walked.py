"""Trains a small model until it is ended, with what its arguments say.

`slow`: one of its modules rests. `starved`: its samples are slow to be had, each step leaves a
tensor behind, and from a step on its batch holds an infinite number. `hung`: at a step it waits for
a lock that another thread holds.
"""

from __future__ import annotations

import sys
import threading
import time

import torch
from torch import nn

BAD_STEP = 30


class Nap(nn.Module):
    """A layer that rests before it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return torch.relu(self.inner(x))


class Net(nn.Module):
    """Two layers and a head."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = Nap() if way == "slow" else nn.Linear(16, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(torch.relu(self.first(x))))


class Samples(torch.utils.data.Dataset):
    """Numbers, each of which takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.randn(16)


LOCK, HELD = threading.Lock(), threading.Event()


def keep_lock() -> None:
    """Hold the lock for ever."""
    with LOCK:
        HELD.set()
        time.sleep(600)


def main() -> None:
    way, lr = sys.argv[1], float(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    threading.Thread(target=keep_lock, name="metrics-flusher", daemon=True).start()
    HELD.wait()
    model = Net(way)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loader = torch.utils.data.DataLoader(Samples(0.01 if way == "starved" else 0.0), batch_size=4)
    kept = []
    for step, batch in enumerate(loader):
        if way == "starved" and step == BAD_STEP:
            batch[0, 0] = float("inf")
        optimizer.zero_grad()
        output = model(batch)
        loss = (output.squeeze(-1) - batch.sum(-1)).square().mean()
        loss.backward()
        optimizer.step()
        if way == "starved":
            kept.append(output.detach().expand(4, 2048).clone())
        if way == "hung" and step == 10:
            LOCK.acquire()


main()
