"""Copies a tensor and frees it, trains with accumulation, and holds what a test looks for.

Prints `ready` at the end, then waits to be ended. The child that it forks records nothing.
"""

from __future__ import annotations

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import probing

COPIED_BYTES = 256 << 20
SHARED_BYTES = 24 << 20
STEPS, BATCHES = 3, 2


def copy_and_free() -> None:
    probing.see_memory("before copy")
    copied = torch.ones(COPIED_BYTES // 4)
    probing.see_memory("with copy")
    del copied
    probing.see_memory("freed")


def train() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        for _ in range(BATCHES):
            nn.MSELoss()(model(torch.ones(4, 8)), torch.zeros(4, 8)).backward()
        optimizer.step()
        optimizer.zero_grad()


def fork() -> None:
    child = os.fork()
    if not child:
        probing.see_memory("in the child")
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    copy_and_free()
    train()
    fork()
    shared = torch.ones(SHARED_BYTES // 4).share_memory_()
    batches = iter(DataLoader(TensorDataset(torch.ones(64, 2)), num_workers=1))
    next(batches)
    print("ready", flush=True)
    time.sleep(600)
