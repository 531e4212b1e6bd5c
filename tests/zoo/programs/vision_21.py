"""Super-resolution of small patches."""

import torch
from torch import nn


class Upscaler(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Conv2d(1, width, 5, padding=2)
        self.blocks = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(4)])
        self.last = nn.Conv2d(width, 4, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, small):
        hidden = torch.relu(self.first(small))
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        coarse = nn.functional.interpolate(small, scale_factor=2, mode="nearest")
        return coarse + self.shuffle(self.last(hidden))


def waves(generator, count=8, size=32):
    frequency = torch.rand(count, 2, generator=generator) * 0.6
    ticks = torch.arange(size).float()
    rows = torch.sin(frequency[:, :1] * ticks)
    columns = torch.cos(frequency[:, 1:] * ticks)
    return (rows.unsqueeze(2) * columns.unsqueeze(1)).unsqueeze(1)


def main():
    torch.manual_seed(49)
    generator = torch.Generator().manual_seed(49)
    model = Upscaler()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        large = waves(generator)
        small = nn.functional.avg_pool2d(large, 2)
        loss = nn.functional.l1_loss(model(small), large)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} l1 {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
