"""Deep classifier for the two-rings problem, lifted into 16 dimensions."""

import math

import torch
from torch import nn


class DeepNet(nn.Module):
    def __init__(self, inputs=16, width=48, depth=16):
        super().__init__()
        sizes = [inputs] + [width] * depth
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])
        self.out = nn.Linear(width, 2)

    def forward(self, points):
        hidden = points
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden))
        return self.out(hidden)


def rings(count, generator):
    labels = torch.randint(0, 2, (count,), generator=generator)
    angle = torch.rand(count, generator=generator) * 2 * math.pi
    radius = 1.0 + labels + 0.1 * torch.randn(count, generator=generator)
    flat = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return flat, labels


def main():
    torch.manual_seed(28)
    generator = torch.Generator().manual_seed(29)
    lift = torch.randn(2, 16, generator=generator)
    model = DeepNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for step in range(1_000_000):
        points, labels = rings(128, generator)
        logits = model(points @ lift)
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            accuracy = (logits.argmax(1) == labels).float().mean().item()
            print(f"step {step} loss {loss.item():.5f} accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
