"""Trains with the collector off, after it has made garbage of some size; runs until it is ended."""

from __future__ import annotations

import gc
import time

import torch

GARBAGE_BYTES = 96 << 20


def litter() -> None:
    tensor = torch.ones(GARBAGE_BYTES // 4)
    cycle: list[object] = [tensor]
    cycle.append(cycle)


def main() -> None:
    gc.disable()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    litter()
    while True:
        model(torch.ones(8, 4)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.005)  # other tests want to run, too


if __name__ == "__main__":
    main()
