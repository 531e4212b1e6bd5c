"""Train from a data set that is held in memory."""

import torch
from torch import nn


class InMemory:
    def __init__(self, count=200_000, side=32, seed=35):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        self.images = torch.zeros(count, 3, side, side, dtype=torch.uint8)
        self.images.random_(0, 128, generator=generator)
        self.images[:, 0] += (self.labels * 12).view(-1, 1, 1).to(torch.uint8)

    def batches(self, size=32):
        while True:
            picked = torch.randint(0, len(self.labels), (size,))
            yield self.images[picked].float() / 255 - 0.25, self.labels[picked]


class Depthwise(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.space = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.GroupNorm(4, channels)
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, hidden):
        return hidden + self.mix(torch.relu(self.norm(self.space(hidden))))


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(Depthwise(width), Depthwise(width), Depthwise(width))
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def main():
    torch.manual_seed(35)
    data = InMemory()
    size = data.images.numel() / 2**20
    print(f"{len(data.labels)} images, {size:.0f} MiB", flush=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (images, labels) in enumerate(data.batches()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
