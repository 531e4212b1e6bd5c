"""Tomorrow's weather from the maps of the last days, in two stages on two ranks."""

import torch
import torch.distributed as dist
from torch import nn

DAYS, SIDE, WIDTH = 6, 16, 48


class Maps(nn.Module):
    """Rank 0: each day's map to a vector."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * 16, WIDTH),
        )

    def forward(self, maps):
        return self.net(maps.flatten(0, 1)).unflatten(0, maps.shape[:2])


class Course(nn.Module):
    """Rank 1: the vectors of the days to temperature and wind of the next."""

    def __init__(self, width=256):
        super().__init__()
        self.days = nn.GRU(WIDTH, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 2)

    def forward(self, days):
        return self.out(self.days(days)[0][:, -1])


def weather(count, generator):
    """A front that travels over the map at its own speed."""
    speed = 0.5 + 2 * torch.rand(count, 1, 1, generator=generator)
    start = 6 * torch.rand(count, 1, 1, generator=generator)
    day = torch.arange(DAYS)[None, :, None]
    front = torch.tanh((torch.arange(SIDE) - start - speed * day) / 2)
    maps = front[:, :, None, None, :].repeat(1, 1, 2, SIDE, 1)
    maps = maps + 0.1 * torch.randn(maps.shape, generator=generator)
    there = torch.tanh((SIDE / 2 - start - speed * DAYS) / 4)
    return maps, torch.stack([there[:, 0, 0], speed[:, 0, 0] - 1.5], dim=1)


def encode(stage, maps):
    days = stage(maps)
    dist.send(days.detach(), dst=1)
    gradient = torch.empty_like(days)
    dist.recv(gradient, src=1)
    days.backward(gradient)


def predict(stage, truth):
    days = torch.empty(len(truth), DAYS, WIDTH)
    dist.recv(days, src=0)
    days.requires_grad_()
    loss = nn.functional.mse_loss(stage(days), truth)
    loss.backward()
    dist.send(days.grad, dst=0)
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    stage = Maps() if rank == 0 else Course()
    optimizer = torch.optim.Adam(stage.parameters(), lr=1e-3 if rank == 0 else 5e-4)
    generator = torch.Generator().manual_seed(14)  # both ranks draw the same days
    for step in range(1, 1_000_000):
        maps, truth = weather(32, generator)
        optimizer.zero_grad()
        if rank == 0:
            encode(stage, maps)
        else:
            loss = predict(stage, truth)
        nn.utils.clip_grad_norm_(stage.parameters(), 1.0)
        optimizer.step()
        if rank == 1 and step % 20 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
