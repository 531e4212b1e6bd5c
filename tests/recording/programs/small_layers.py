"""Trains many small layers, whose hooks cost far more than a percent; prints `ready` at the end."""

from __future__ import annotations

import signal

STEPS = 150
LAYERS = 60

if __name__ == "__main__":
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("ready", flush=True)
    while True:
        signal.pause()
