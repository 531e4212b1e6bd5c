"""Trains until its loss is beyond all bounds, and waits for a batch that never comes."""

from __future__ import annotations

import queue

import torch

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    for step in range(70):
        batches.put(torch.randn(8, 4))
        loss = (model(batches.get()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 60:
            optimizer.param_groups[0]["lr"] = 1e4
        if loss > 1e31:
            break
    print("ready", flush=True)
    batches.get()
