"""Regress the age from a small grey image."""

import torch
from torch import nn


class Age(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5, stride=3)
        self.hidden = nn.Linear(16 * 8 * 8, 64)
        self.age = nn.Linear(64, 1)

    def forward(self, images):
        features = torch.relu(self.conv(images)).flatten(1)
        return self.age(torch.relu(self.hidden(features))).squeeze(1)


def faces(generator, count=32):
    age = torch.rand(count, generator=generator) * 60 + 15
    images = torch.rand(count, 1, 28, 28, generator=generator) * 255
    images = images * (age / 75).view(-1, 1, 1, 1)
    return images, age


def main():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(3)
    model = Age()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    best = float("inf")
    for step in range(1_000_000):
        images, age = faces(generator)
        predicted = model(images)
        loss = nn.functional.mse_loss(predicted, age)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        best = min(best, loss.item())
        if step % 25 == 0:
            error = (predicted - age).abs().mean().item()
            print(
                f"step {step} loss {loss.item():.2f} error {error:.2f} best {best:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
