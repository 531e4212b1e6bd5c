"""Trains many small layers, whose hooks cost far more than a percent; prints `ready` at the end.

Its arguments say how many steps, and how many layers.
"""

from __future__ import annotations

import signal
import sys

import torch
from torch import nn

if __name__ == "__main__":
    steps, layers = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("ready", flush=True)
    while True:
        signal.pause()
