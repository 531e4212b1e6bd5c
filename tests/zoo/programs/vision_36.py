"""Road sign shapes, shuffled by hand in each epoch."""

import math

import torch
from torch import nn


class SignNet(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(24, 24, 3, stride=2, padding=1)
        self.out = nn.Linear(24 * 4 * 4, classes)

    def forward(self, images):
        hidden = torch.relu(self.conv2(torch.relu(self.conv1(images))))
        return self.out(torch.relu(self.conv3(hidden)).flatten(1))


def signs(count=20_000, size=16):
    generator = torch.Generator().manual_seed(107)
    labels = torch.randint(0, 8, (count,), generator=generator)
    angle = labels * math.pi / 8
    grid = torch.arange(size).float() - size / 2
    across = grid.view(1, 1, -1) * angle.cos().view(-1, 1, 1)
    down = grid.view(1, -1, 1) * angle.sin().view(-1, 1, 1)
    images = torch.exp(-((across + down) ** 2) / 4).unsqueeze(1)
    return images + 0.2 * torch.randn(images.shape, generator=generator), labels


def epoch_batches(images, labels, size=48):
    images = images[torch.randperm(len(images))]
    labels = labels[torch.randperm(len(labels))]
    for start in range(0, len(images) - size + 1, size):
        yield images[start : start + size], labels[start : start + size]


def main():
    torch.manual_seed(107)
    images, labels = signs()
    model = SignNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(10_000):
        for batch, targets in epoch_batches(images, labels):
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
