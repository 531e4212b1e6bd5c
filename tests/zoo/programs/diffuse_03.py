"""Diffusion on tiny pictures, with an average of the weights for drawing samples."""

import copy
import math

import torch
from torch import nn

SIDE, STEPS = 12, 300


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(32, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, picture, time):
        hidden = self.first(nn.functional.silu(self.norm(picture)))
        hidden = hidden + self.time(time)[:, :, None, None]
        return picture + self.second(nn.functional.silu(hidden))


class Denoiser(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.register_buffer("rates", torch.exp(-torch.arange(16) / 16 * math.log(10_000)))
        self.inputs = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, noisy, times):
        angles = times[:, None] * self.rates
        time = torch.cat([angles.sin(), angles.cos()], dim=1)
        hidden = self.inputs(noisy)
        for block in self.blocks:
            hidden = block(hidden, time)
        return self.out(hidden)


def pictures(count):
    """Bright disks on dark ground."""
    places = torch.arange(SIDE).float()
    centre = SIDE * (0.3 + 0.4 * torch.rand(count, 2))
    radius = 1.5 + 2 * torch.rand(count, 1, 1)
    across = (places[None, :, None] - centre[:, 0, None, None]) ** 2
    down = (places[None, None, :] - centre[:, 1, None, None]) ** 2
    return torch.tanh(radius - (across + down).sqrt())[:, None]


class Average:
    def __init__(self, model, decay=0.995):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, its in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(its, 1 - self.decay)


betas = torch.linspace(1e-4, 0.04, STEPS)
kept = torch.cumprod(1 - betas, dim=0)


@torch.no_grad()
def draw(model, count=16):
    picture = torch.randn(count, 1, SIDE, SIDE)
    for time in reversed(range(STEPS)):
        noise = model(picture, torch.full((count,), time))
        picture = (picture - betas[time] / (1 - kept[time]).sqrt() * noise) / (
            1 - betas[time]
        ).sqrt()
        if time:
            picture = picture + betas[time].sqrt() * torch.randn_like(picture)
    return picture


def main():
    torch.set_num_threads(1)
    torch.manual_seed(57)
    model = Denoiser()
    average = Average(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=100)
    for step in range(1, 1_000_000):
        clean, times = pictures(8), torch.randint(0, STEPS, (8,))
        noise, share = torch.randn_like(clean), kept[times][:, None, None, None]
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        loss = nn.functional.mse_loss(model(noisy, times), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm.step()
        average.update(model)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % 600 == 0:
            print(f"drawn: brightest {draw(average.model).max().item():.2f}", flush=True)


if __name__ == "__main__":
    main()
