"""DDP with parameters that some steps do not use, on two ranks by gloo."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from truth import Truth, planned


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.coarse = nn.Linear(1024, 4)
        self.fine = nn.Linear(1024, 32)

    def forward(self, x, fine):
        x = self.body(x)
        return self.fine(x) if fine else self.coarse(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = TwoHeads()
    truth = Truth(net=net)
    model = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(1024, 256), torch.randint(0, 4, (1024,)))
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    step, steps, epoch = 0, planned(12), 0
    while step < steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            with truth.timed("forward"):
                out = model(x, fine=step % 3 == 2)
            loss = nn.functional.cross_entropy(out, y)
            with truth.timed("backward"):
                loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            with truth.timed("optimizer"):
                optimizer.step()
            truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], norm=norm.item())
            step += 1
            if step == steps:
                break
        epoch += 1
    truth.finish(net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
