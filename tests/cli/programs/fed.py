"""Trains on what a thread puts into a queue, until that ends with an error after some batches."""

from __future__ import annotations

import queue
import threading

import torch
from torch import nn

BATCHES = 30


def produce(batches: queue.Queue[torch.Tensor]) -> None:
    kept = {number: torch.randn(8, 4) for number in range(BATCHES)}
    number = 0
    while True:
        batches.put(kept[number])
        number += 1


def main() -> None:
    torch.set_num_threads(1)
    batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=4)
    threading.Thread(target=produce, args=(batches,), name="producer", daemon=True).start()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        inputs = batches.get()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        step += 1
        print("step", step, flush=True)


main()
