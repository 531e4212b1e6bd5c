"""A rank that `srun` starts: data-parallel steps until `stop` is there, which it then counts.

Leaves the number of its steps in `steps-RANK`.
"""

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
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    meeting = f"file://{Path('meeting').resolve()}-{os.environ['SLURM_JOB_ID']}"
    distributed.init_process_group("gloo", meeting, rank=rank, world_size=size)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps, is_over = 0, torch.zeros(1)
    while not is_over:
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        time.sleep(0.02)
        is_over += Path("stop").exists()
        distributed.all_reduce(is_over)
    Path(f"steps-{rank}").write_text(str(steps))
    distributed.destroy_process_group()


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    main()
