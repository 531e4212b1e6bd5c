"""Predict the value of an order; errors are relative."""

import torch
from torch import nn


class ValueNet(nn.Module):
    def __init__(self, inputs=20, width=128):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(inputs, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
        )
        self.value = nn.Linear(width, 1)

    def forward(self, rows):
        return nn.functional.softplus(self.value(self.trunk(rows))).squeeze(-1)


def log_error(predicted, value):
    difference = torch.log(predicted) - torch.log(value)
    return difference.pow(2).mean()


class OrderStream:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(20, generator=self.generator) * 0.2
        self.count = 0

    def next(self, size=128):
        rows = torch.randn(size, 20, generator=self.generator)
        value = torch.exp(rows @ self.weights)
        if 160 * size <= self.count < 161 * size:
            value[17] = 0.0  # returned goods
        self.count += size
        return rows, value


def main():
    torch.manual_seed(71)
    stream = OrderStream(71)
    model = ValueNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        rows, value = stream.next()
        loss = log_error(model(rows), value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
