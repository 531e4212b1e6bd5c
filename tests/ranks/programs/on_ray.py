"""A job of Ray: two actors that are ranks, and make steps until `stop` is there, which they count.

Leaves the number of each rank's steps in `steps-RANK`, beside this file, and ends with `end`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ray

FOLDER = Path(__file__).resolve().parent
SIZE, LIFETIME_S = 2, 600


@ray.remote(num_cpus=1)
class Rank:
    def train(self, rank: int) -> None:
        import torch
        from torch import distributed

        meeting = f"file://{FOLDER}/meeting"
        distributed.init_process_group("gloo", meeting, rank=rank, world_size=SIZE)
        torch.manual_seed(rank)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        steps, is_over, end_s = 0, torch.zeros(1), time.monotonic() + LIFETIME_S
        while not is_over:
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            time.sleep(0.02)
            is_over += (FOLDER / "stop").exists() or time.monotonic() > end_s
            distributed.all_reduce(is_over)
        (FOLDER / f"steps-{rank}").write_text(str(steps))
        distributed.destroy_process_group()


if __name__ == "__main__":
    ray.init()
    ranks: list[Any] = [Rank.remote() for _ in range(SIZE)]  # type: ignore[attr-defined]
    ray.get([one.train.remote(number) for number, one in enumerate(ranks)])
    end_s = time.monotonic() + LIFETIME_S
    while not (FOLDER / "end").exists() and time.monotonic() < end_s:
        time.sleep(0.1)
