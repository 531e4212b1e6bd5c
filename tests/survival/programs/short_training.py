"""The training of programs that look for what harms one: its losses, to the last bit."""

from __future__ import annotations

import torch
from torch import nn


def losses_of(model: nn.Module, steps: int) -> list[str]:
    """Train a model that takes 4 features, and return the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses
