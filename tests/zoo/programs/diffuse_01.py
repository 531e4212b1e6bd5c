"""A diffusion model of short waves, after Ho et al. with the schedule of Nichol and Dhariwal."""

import math

import torch
from torch import nn

STEPS = 1000


def level(time):
    return math.cos((time / STEPS + 0.008) / 1.008 * math.pi / 2) ** 2


def beta(time):
    return min(1 - level(time + 1) / level(time), 0.999)


def kept_signal(time):
    """How much of the signal is left after so many steps of noise."""
    product = 1.0
    for before in range(time + 1):
        product *= 1 - beta(before)
    return product


def add_noise(clean, times, noise):
    kept = torch.tensor([kept_signal(time) for time in times.tolist()])[:, None]
    return kept.sqrt() * clean + (1 - kept).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, length=64, width=256):
        super().__init__()
        self.register_buffer("rates", torch.exp(-torch.arange(16) / 16 * math.log(10_000)))
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.inputs = nn.Linear(length, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
            )
            for _ in range(3)
        )
        self.out = nn.Linear(width, length)

    def forward(self, noisy, times):
        angles = times[:, None] * self.rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        hidden = self.inputs(noisy)
        for block in self.blocks:
            hidden = hidden + block(hidden + time)
        return self.out(hidden)


def waves(count, generator, length=64):
    places = torch.linspace(0, 2 * math.pi, length)
    rate = torch.randint(1, 5, (count, 1), generator=generator)
    phase = 2 * math.pi * torch.rand(count, 1, generator=generator)
    return math.sqrt(2) * torch.sin(rate * places + phase)


class Trainer:
    def __init__(self, model, seed):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        self.generator = torch.Generator().manual_seed(seed)

    def step(self, count=64):
        clean = waves(count, self.generator)
        times = torch.randint(0, STEPS, (count,), generator=self.generator)
        noise = torch.randn(clean.shape, generator=self.generator)
        noisy = add_noise(clean, times, noise)
        loss = nn.functional.mse_loss(self.model(noisy, times), noise)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(8)
    trainer = Trainer(Denoiser(), seed=8)
    for step in range(1, 1_000_000):
        loss = trainer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
