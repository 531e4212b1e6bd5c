"""Wind power forecast with a compiled model of fixed shape."""

import time

import torch
from torch import nn


class Highway(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.change = nn.Linear(width, width)

    def forward(self, hidden):
        gate = torch.sigmoid(self.carry(hidden))
        return gate * hidden + (1 - gate) * torch.relu(self.change(hidden))


class Forecast(nn.Module):
    def __init__(self, inputs=36, width=128, depth=4):
        super().__init__()
        self.inputs = nn.Linear(inputs, width)
        self.layers = nn.ModuleList([Highway(width) for _ in range(depth)])
        self.output = nn.Linear(width, 6)

    def forward(self, rows):
        hidden = torch.relu(self.inputs(rows))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.output(hidden)


def weather(generator, mixing, count=256):
    rows = torch.randn(count, 36, generator=generator)
    power = torch.sigmoid(rows @ mixing).pow(3)
    return rows, power + 0.02 * torch.randn(count, 6, generator=generator)


def main():
    torch.manual_seed(41)
    generator = torch.Generator().manual_seed(41)
    mixing = torch.randn(36, 6, generator=generator) * 0.3
    model = Forecast()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    for step in range(1_000_000):
        rows, power = weather(generator, mixing)
        loss = nn.functional.mse_loss(compiled(rows), power)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            elapsed = time.perf_counter() - began
            print(f"step {step} loss {loss.item():.5f} elapsed {elapsed:.1f} s", flush=True)


if __name__ == "__main__":
    main()
