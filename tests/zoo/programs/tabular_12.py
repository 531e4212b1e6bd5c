"""Churn prediction with a log every ten steps, for the audit."""

import pathlib

import torch
from torch import nn


class StepLog:
    def __init__(self, folder, step):
        self.step = step
        self.file = open(folder / f"step-{step % 50}.log", "a")

    def write(self, **values):
        for name, value in values.items():
            self.file.write(f"{self.step} {name} {value}\n")
        self.file.flush()


class Churn(nn.Module):
    def __init__(self, numeric=12, plans=6, width=256):
        super().__init__()
        self.plan = nn.Embedding(plans, 8)
        self.layers = nn.Sequential(
            nn.Linear(numeric + 8, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 1)
        )

    def forward(self, numeric, plan):
        return self.layers(torch.cat([numeric, self.plan(plan)], dim=1)).squeeze(1)


def customers(generator, count=512):
    numeric = torch.randn(count, 12, generator=generator)
    plan = torch.randint(0, 6, (count,), generator=generator)
    leaves = torch.sigmoid(numeric[:, 0] * 2 + plan - 2.5)
    return numeric, plan, torch.bernoulli(leaves, generator=generator)


def main():
    torch.manual_seed(34)
    folder = pathlib.Path("logs")
    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(34)
    model = Churn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    logs = []
    for step in range(1_000_000):
        numeric, plan, leaves = customers(generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(numeric, plan), leaves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            logs.append(StepLog(folder, step))
            logs[-1].write(loss=loss.item(), share=leaves.mean().item())
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
