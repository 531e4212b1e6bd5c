"""A rank that `mpirun` starts: data-parallel steps until `stop` is there."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

LIFETIME_S = 600


def main() -> None:
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    meeting = f"file://{Path('meeting').resolve()}"
    distributed.init_process_group("gloo", meeting, rank=rank, world_size=size)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    is_over = torch.zeros(1)
    while not is_over:
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        is_over += Path("stop").exists()
        distributed.all_reduce(is_over)
    distributed.destroy_process_group()


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    main()
