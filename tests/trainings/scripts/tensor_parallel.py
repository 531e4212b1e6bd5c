"""Tensor parallelism over two ranks: each linear layer is sharded by a plan."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from truth import Truth, planned


class FeedForward(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.w1 = nn.Linear(width, 4 * width)
        self.w2 = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.w2(torch.relu(self.w1(x)))


torch.manual_seed(79)
dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
model = nn.Sequential(FeedForward(), FeedForward())
plan = {"w1": ColwiseParallel(), "w2": RowwiseParallel()}
for block in model:
    parallelize_module(block, mesh, plan)
truth = Truth(model=model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(planned(14)):
    x = torch.randn(64, 512)
    with truth.timed("forward"):
        out = model(x)
    loss = (out - x).square().mean()
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
dist.destroy_process_group()
