"""Cosine annealing with warm restarts (SGDR)."""

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(channels, 4), nn.ReLU(), nn.Linear(4, channels), nn.Sigmoid()
        )

    def forward(self, hidden):
        return hidden * self.gate(hidden.mean((2, 3))).unsqueeze(2).unsqueeze(3)


class Net(nn.Module):
    def __init__(self, channels=20, classes=7):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, stride=2, padding=1),
            nn.BatchNorm2d(channels),
            nn.SiLU(),
            SqueezeExcite(channels),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
            nn.BatchNorm2d(channels),
            nn.SiLU(),
            SqueezeExcite(channels),
        )
        self.out = nn.Linear(channels, classes)

    def forward(self, images):
        return self.out(self.layers(images).mean((2, 3)))


def crosses(generator, count=32):
    labels = torch.randint(0, 7, (count,), generator=generator)
    images = 0.6 * torch.randn(count, 1, 22, 22, generator=generator)
    for row, label in enumerate(labels.tolist()):
        images[row, 0, 3 * label : 3 * label + 2, :] += 1.0
    return images, labels


def main():
    torch.manual_seed(80)
    generator = torch.Generator().manual_seed(80)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=120)
    for step in range(1_000_000):
        images, labels = crosses(generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(
                f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
