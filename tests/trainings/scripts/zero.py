"""ZeRO: each of two ranks keeps the state of half of the parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from truth import Truth, planned


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    truth = Truth(net=net)
    model = DDP(net)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3
    )
    torch.manual_seed(dist.get_rank())
    for step in range(planned(12)):
        x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
        optimizer.zero_grad()
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])
    truth.finish(net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
