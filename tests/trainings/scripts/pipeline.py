"""Pipeline parallelism over two ranks: a stage each, four micro-batches, GPipe's schedule."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from truth import Truth, planned

torch.manual_seed(80)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
stage_module = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
truth = Truth(stage_module=stage_module)
stage = PipelineStage(stage_module, rank, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.Adam(stage_module.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(8)
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
    truth.step(loss, lr=optimizer.param_groups[0]["lr"])

truth.finish(stage_module)
dist.destroy_process_group()
