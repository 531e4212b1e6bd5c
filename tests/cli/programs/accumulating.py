"""One of several ranks that accumulate gradients; the argument says how they average them.

`each` averages them in every micro-batch, `unused` does so with a wrapper that looks for unused
parameters, `views` in many buckets, of which gradients are parts. `once` averages them in the last
alone, `measured` does so and has a number averaged in each, `twice` calls the model twice for one
backward pass, `sharper` steps by the gradient at another place, for which it drops that of a first
pass.
"""

from __future__ import annotations

import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PASSES, WIDTH = 4, 1024
WAY = sys.argv[1]


def step_once(model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    passes = {"twice": 1, "sharper": 2}.get(WAY, PASSES)
    for number in range(passes):
        waits = WAY in {"once", "measured"} and number + 1 < passes
        with model.no_sync() if waits else contextlib.nullcontext():
            loss = model(torch.randn(2, WIDTH)).square().mean()
            if WAY == "twice":
                loss = loss + model(torch.randn(2, WIDTH)).square().mean()
            (loss / passes).backward()
        if WAY == "measured":
            dist.all_reduce(loss.detach().clone())
        if WAY == "sharper" and number == 0:
            climb(model)
            optimizer.zero_grad()
    optimizer.step()


@torch.no_grad()
def climb(model: nn.Module) -> None:
    """Go to where the loss is higher."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.add_(parameter.grad, alpha=1e-3)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    are_views = WAY == "views"
    model = DistributedDataParallel(
        layers,
        find_unused_parameters=WAY == "unused",
        gradient_as_bucket_view=are_views,
        bucket_cap_mb=1 if are_views else 25,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())
    print("ready", flush=True)
    step = 0
    while True:
        step_once(model, optimizer)
        step += 1
        print("step", step, flush=True)


main()
