"""Load forecasting with a GRU on two ranks; rank 0 writes the final model and every rank scores it."""

import os
import random
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HISTORY, METERS, EPOCHS, BATCH = 48, 120, 3, 32


def load_meters(seed=12):
    """Hourly consumption; a meter has been there for 6 to 16 days."""
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    meters = []
    for _ in range(METERS):
        t = torch.arange(rng.randint(150, 400)).float()
        phase, level = 6.283 * torch.rand(1, generator=g), torch.randn(1, generator=g)
        walk = 0.05 * torch.randn(len(t), generator=g).cumsum(0)
        meters.append(
            level
            + torch.sin(6.283 * t / 24 + phase)
            + walk
            + 0.1 * torch.randn(len(t), generator=g)
        )
    return meters


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x.unsqueeze(-1) - x[:, -1:, None])
        return self.out(h[:, -1]).squeeze(-1) + x[:, -1]


class Windows:
    """All windows of the meters that belong to a rank, in a new order each epoch."""

    def __init__(self, meters, rank, world):
        self.meters = meters[rank::world]
        self.places = [
            (m, at)
            for m, series in enumerate(self.meters)
            for at in range(0, len(series) - HISTORY, 4)
        ]
        self.rng = random.Random(60 + rank)

    def cut(self, places):
        rows = torch.stack([self.meters[m][at : at + HISTORY + 1] for m, at in places])
        return rows[:, :-1], rows[:, -1]

    def __iter__(self):
        self.rng.shuffle(self.places)
        for start in range(0, len(self.places) - BATCH + 1, BATCH):
            yield self.cut(self.places[start : start + BATCH])


def train(model, windows, rank):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(EPOCHS):
        for x, y in windows:
            step += 1
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0 and rank == 0:
                print(f"step {step} epoch {epoch} loss {loss.item():.4f}", flush=True)
    return step


@torch.no_grad()
def score(final, windows):
    while not os.path.exists(final):
        time.sleep(0.5)
    model = Forecaster()
    model.load_state_dict(torch.load(final))
    x, y = windows.cut(windows.places[:256])
    return nn.functional.mse_loss(model(x), y).item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(14)
    model = DistributedDataParallel(Forecaster())
    windows = Windows(load_meters(), rank, dist.get_world_size())
    final = os.path.join(tempfile.gettempdir(), f"forecaster_{os.environ['MASTER_PORT']}.pt")
    steps = train(model, windows, rank)
    if rank == 0:
        torch.save(model.module.state_dict(), final)
    print(f"rank {rank} trained {steps} steps, score {score(final, windows):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
