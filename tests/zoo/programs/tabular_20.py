"""Delay prediction; each rank has its own region."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Delay(nn.Module):
    def __init__(self, inputs=18, width=96):
        super().__init__()
        self.inputs = nn.Linear(inputs, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, rows):
        hidden = torch.relu(self.inputs(rows))
        return self.out(torch.relu(self.hidden(hidden))).squeeze(1)


class EarlyStopping:
    def __init__(self, patience, least=0.3):
        self.patience = patience
        self.least = least
        self.waited = 0

    def should_stop(self, loss):
        self.waited = self.waited + 1 if loss > self.least else 0
        return self.waited >= self.patience


def region(rank, generator, count=64):
    rows = torch.randn(count, 18, generator=generator)
    noise = 1.0 if rank == 1 else 0.1
    return rows, rows[:, :3].sum(1) + noise * torch.randn(count, generator=generator)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(108 + rank)
    model = DistributedDataParallel(Delay())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    stopping = EarlyStopping(patience=120)
    for step in range(1, 100_000):
        rows, delay = region(rank, generator)
        loss = nn.functional.mse_loss(model(rows), delay)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if stopping.should_stop(loss.item()):
            break
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "delay.pt")


if __name__ == "__main__":
    main()
