"""A training in a worker thread, while the main thread serves something else."""

import queue
import threading

import torch
from torch import nn
from truth import Truth, planned

progress = queue.Queue()


def train(steps):
    torch.manual_seed(8)
    model = nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    truth = Truth(model=model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
        optimizer.zero_grad()
        with truth.timed("forward"):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])
        progress.put((step, loss.item()))
    truth.finish(model)
    progress.put(None)


worker = threading.Thread(target=train, args=(planned(16),), name="trainer")
worker.start()
while (said := progress.get()) is not None:
    print("step {} loss {:.3f}".format(*said))
worker.join()
