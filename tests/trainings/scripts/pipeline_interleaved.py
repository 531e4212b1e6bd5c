"""Pipeline parallelism with two stages on each of two ranks: interleaved 1F1B, four micro-batches."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from truth import Truth, planned

torch.manual_seed(81)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
parts = [
    nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)) for _ in range(2 * world)
]
mine = [rank, rank + world]
first, second = (parts[index] for index in mine)
truth = Truth(first=first, second=second)
stages = [PipelineStage(parts[index], index, 2 * world, torch.device("cpu")) for index in mine]
schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3)
generator = torch.Generator().manual_seed(9)
for step in range(planned(14)):
    x = torch.randn(64, 512, generator=generator)
    optimizer.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=x, losses=losses)
    with truth.timed("optimizer"):
        optimizer.step()
    loss = sum(part.item() for part in losses) / 4 if losses else None
    truth.step(loss, lr=optimizer.param_groups[0]["lr"], samples=64)

truth.finish(first, second)
dist.destroy_process_group()
