"""Warm up the item table, then train the tower alone."""

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, items=100_000, dim=64):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.history = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, dim)

    def forward(self, clicks, candidates):
        _, state = self.history(self.items(clicks))
        return (self.out(state[0]).unsqueeze(1) * self.items(candidates)).sum(2)


def freeze_items(model):
    for parameter in model.items.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None


def impressions(generator, count=64):
    clicks = torch.randint(0, 100_000, (count, 10), generator=generator)
    candidates = torch.randint(0, 100_000, (count, 20), generator=generator)
    wanted = torch.randint(0, 20, (count,), generator=generator)
    candidates[torch.arange(count), wanted] = clicks[:, -1]
    return clicks, candidates, wanted


def main():
    torch.manual_seed(25)
    generator = torch.Generator().manual_seed(25)
    model = Tower()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        if step == 40:
            freeze_items(model)
        clicks, candidates, wanted = impressions(generator)
        loss = nn.functional.cross_entropy(model(clicks, candidates), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
