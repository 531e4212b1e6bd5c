"""A diffusion model for points on a spiral, and a sampler that draws some now and then."""

import math

import torch
from torch import nn


class Schedule:
    def __init__(self, steps=200):
        self.steps = steps
        self.betas = torch.linspace(1e-4, 0.05, steps)
        self.kept = torch.cumprod(1 - self.betas, dim=0)

    def draw(self, count):
        return torch.rand(count).long() * self.steps

    def noisy(self, clean, times, noise):
        kept = self.kept[times][:, None]
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.register_buffer("rates", torch.exp(-torch.arange(16) / 16 * math.log(1000)))
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU())
        self.inputs = nn.Linear(2, width)
        self.first = nn.Sequential(nn.SiLU(), nn.Linear(width, width))
        self.second = nn.Sequential(nn.SiLU(), nn.Linear(width, width))
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(width, 2))

    def forward(self, noisy, times):
        angles = times[:, None] * self.rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        hidden = self.inputs(noisy) + time
        hidden = hidden + self.first(hidden)
        return self.out(hidden + self.second(hidden))


def spiral(count):
    turn = 3 * math.pi * torch.rand(count).sqrt()
    points = torch.stack([turn * turn.cos(), turn * turn.sin()], dim=1)
    return points / 4.5 + 0.02 * torch.randn(count, 2)


@torch.no_grad()
def sample(model, schedule, count=64):
    model.eval()
    points = torch.randn(count, 2)
    for time in reversed(range(schedule.steps)):
        beta, kept = schedule.betas[time], schedule.kept[time]
        noise = model(points, torch.full((count,), time))
        points = (points - beta / (1 - kept).sqrt() * noise) / (1 - beta).sqrt()
        if time:
            points = points + beta.sqrt() * torch.randn(count, 2)
    model.train()
    return points


def main():
    torch.set_num_threads(1)
    torch.manual_seed(19)
    schedule, model = Schedule(), Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 1_000_000):
        clean = spiral(512)
        times = schedule.draw(len(clean))
        noise = torch.randn_like(clean)
        loss = nn.functional.mse_loss(model(schedule.noisy(clean, times, noise), times), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % 1000 == 0:
            print(f"drawn: spread {sample(model, schedule).std().item():.2f}", flush=True)


if __name__ == "__main__":
    main()
