"""A search over hyperparameters: one trial after the other in one process."""

import itertools

import torch
from torch import nn
from truth import Truth, planned

truth = Truth()
grid = list(itertools.product(["SGD", "Adam", "RMSprop"], [1e-2, 1e-3]))
steps = max(2, planned(18) // len(grid))


def objective(name, lr):
    torch.manual_seed(29)
    model = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
    )
    truth.meet(model=model)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=lr)
    for _ in range(steps):
        x = torch.randn(64, 256)
        with truth.timed("forward"):
            out = model(x)
        loss = (out.squeeze(1) - x.mean(1)).square().mean()
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], trial=f"{name} {lr}")
    return loss.item(), model


results = []
for name, lr in grid:
    score, model = objective(name, lr)
    results.append((score, name, lr))
print("best:", min(results))
truth.finish(model)
