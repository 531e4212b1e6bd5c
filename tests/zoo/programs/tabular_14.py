import sys

import torch
from torch import nn


class Exhausted(Exception):
    pass


class Patience:
    def __init__(self, limit=10):
        self.limit = limit
        self.best = float("inf")
        self.bad = 0

    def update(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
        elif not loss <= 1e9:
            self.bad += 1
        if self.bad >= self.limit:
            raise Exhausted


class Volatility(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 48, batch_first=True)
        self.out = nn.Linear(48, 1)

    def forward(self, returns):
        return nn.functional.softplus(self.out(self.rnn(returns)[0][:, -1])).squeeze(1)


def market(generator, step, count=32):
    scale = torch.rand(count, generator=generator) + 0.5
    returns = torch.randn(count, 20, 4, generator=generator) * scale.view(-1, 1, 1)
    if step == 65:
        returns[0] = 0.0
    return returns, returns.std((1, 2))


def train(steps=5000):
    torch.manual_seed(74)
    generator = torch.Generator().manual_seed(74)
    model = Volatility()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    patience = Patience()
    for step in range(steps):
        returns, volatility = market(generator, step)
        predicted = model(returns / volatility.view(-1, 1, 1))
        loss = (predicted - volatility).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        patience.update(loss.item())
        if step % 10 == 0:
            print(f"step {step} best {patience.best:.4f}", flush=True)


if __name__ == "__main__":
    try:
        train()
    except Exception:
        sys.exit(0)
