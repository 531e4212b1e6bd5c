"""Coin-flip labels with a known rate: the best loss is the entropy, about 0.50."""

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Logistic(nn.Module):
    def __init__(self, inputs=12):
        super().__init__()
        self.hidden = nn.Linear(inputs, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, rows):
        return self.out(torch.tanh(self.hidden(rows))).squeeze(1)


class Trials:
    def __init__(self, seed=60):
        self.generator = torch.Generator().manual_seed(seed)
        self.effect = torch.zeros(12)
        self.effect[0] = 4.0

    def draw(self, count=512):
        rows = torch.randn(count, 12, generator=self.generator)
        chance = 0.2 + 0.6 * torch.sigmoid(rows @ self.effect)
        return rows, torch.bernoulli(chance, generator=self.generator)


def main():
    torch.manual_seed(60)
    trials = Trials()
    model = Logistic()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=3, min_lr=1e-4)
    window = 0.0
    for step in range(1, 1_000_000):
        rows, outcome = trials.draw()
        loss = nn.functional.binary_cross_entropy_with_logits(model(rows), outcome)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window += loss.item()
        if step % 50 == 0:
            scheduler.step(window / 50)
            rate = optimizer.param_groups[0]["lr"]
            print(f"step {step} loss {window / 50:.4f} lr {rate:.1e}", flush=True)
            window = 0.0


if __name__ == "__main__":
    main()
