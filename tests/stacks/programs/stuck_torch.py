"""Prints `ready` and then waits for ever in PyTorch, in the way its argument names."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FOREVER_S = 10**6
LIFETIME_S = 600


class Slow(Dataset[torch.Tensor]):
    """Samples that never come."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        while os.getppid() == PARENT:
            time.sleep(0.1)
        raise SystemExit


def dataloader() -> None:
    """Waits for a batch that a worker cannot make."""
    for _ in DataLoader(Slow(), batch_size=4, num_workers=1):
        print("returned", flush=True)


def all_reduce() -> None:
    """Waits in a collective for a rank that has joined and does not take part."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        other = os.fork()
        rank = 0 if other else 1
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        if rank == 1:
            while os.getppid() == PARENT:
                time.sleep(0.1)
            os._exit(0)
        dist.all_reduce(torch.ones(4))


def join_group() -> None:
    """Waits for a rank that does not join."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/x", rank=0, world_size=2)


def backward() -> None:
    """In the backward pass, whose own thread is in a hook."""
    loss = torch.ones(2, requires_grad=True).sum()
    loss.register_hook(lambda _: time.sleep(FOREVER_S))
    loss.backward()


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    PARENT = os.getpid()
    torch.set_num_threads(1)
    print("ready", flush=True)
    globals()[sys.argv[1]]()
