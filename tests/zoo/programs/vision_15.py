"""Colour classification with a step schedule: halve the rate every ten epochs."""

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class ColourNet(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1, stride=2),
            nn.ELU(),
            nn.Conv2d(24, 24, 3, padding=1, stride=2),
            nn.ELU(),
        )
        self.out = nn.Linear(24, classes)

    def forward(self, images):
        return self.out(self.layers(images).mean((2, 3)))


def colours(count=16_000):
    generator = torch.Generator().manual_seed(39)
    palette = torch.rand(12, 3, 1, 1, generator=generator)
    labels = torch.randint(0, 12, (count,), generator=generator)
    images = palette[labels] + 0.5 * torch.randn(count, 3, 12, 12, generator=generator)
    return TensorDataset(images, labels)


def main():
    torch.manual_seed(39)
    loader = DataLoader(colours(), batch_size=32, shuffle=True)
    model = ColourNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=10, gamma=0.5)
    step = 0
    for epoch in range(100):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            scheduler.step()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
