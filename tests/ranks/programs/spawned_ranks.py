"""Two ranks as `torch.multiprocessing.spawn` makes them, which no launcher's variable names.

Prints `ready` and its number when both have trained some steps.
"""

from __future__ import annotations

import os
import socket

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, port: int) -> None:
    """One rank."""
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        step += 1
        if step == 20 and rank == 0:
            print("ready", flush=True)


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    multiprocessing.spawn(train, args=(number,), nprocs=2)
