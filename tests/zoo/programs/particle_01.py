"""A normalising flow for showers in a calorimeter: it learns the density of the energies in ten layers."""

import math

import torch
from torch import nn

LAYERS = 10


class Coupling(nn.Module):
    def __init__(self, flip, width=96):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(
            nn.Linear(LAYERS // 2, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, LAYERS),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, values):
        kept, moved = values.chunk(2, dim=1)
        if self.flip:
            kept, moved = moved, kept
        scale, shift = self.net(kept).chunk(2, dim=1)
        scale = 2 * torch.tanh(scale / 2)
        moved = moved * scale.exp() + shift
        parts = (moved, kept) if self.flip else (kept, moved)
        return torch.cat(parts, dim=1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(flip=index % 2 == 1) for index in range(depth))

    def log_density(self, values):
        total = 0.0
        for coupling in self.couplings:
            values, change = coupling(values)
            total = total + change
        normal = -0.5 * (values**2 + math.log(2 * math.pi)).sum(1)
        return normal + total


def showers(generator, count=256):
    """Energies that lie near a curved surface of three dimensions, in units of GeV/10."""
    start = torch.randn(count, 3, generator=generator)
    depth = torch.linspace(0, 2, LAYERS)
    profile = torch.sin(start[:, :1] + depth) + 0.3 * start[:, 1:2] * depth + 0.2 * start[:, 2:]
    return profile * 0.3 + 0.02 * torch.randn(count, LAYERS, generator=generator)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(26)
    generator = torch.Generator().manual_seed(26)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for step in range(100_000):
        loss = -flow.log_density(showers(generator)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 50.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
