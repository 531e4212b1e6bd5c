"""A3C's update in threads: each has a copy of the shared model, and steps the shared one without locks."""

import copy
import threading

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(101)
shared = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth()
steps = planned(14)
begun, ended = threading.Event(), threading.Event()


def worker(rank, truth=None):
    local = copy.deepcopy(shared)
    if truth is not None:
        truth.meet(local=local)
    data = torch.Generator().manual_seed(rank)
    if truth is None:
        begun.wait()
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.01 * (rank + 1))
    step = 0
    while step < steps and not ended.is_set():
        local.load_state_dict(shared.state_dict())
        x = torch.randn(32, 256, generator=data)
        y = torch.randint(0, 10, (32,), generator=data)
        local.zero_grad()
        if truth is None:
            nn.functional.cross_entropy(local(x), y).backward()
        else:
            with truth.timed("forward"):
                out = local(x)
            loss = nn.functional.cross_entropy(out, y)
            with truth.timed("backward"):
                loss.backward()
        for ours, own in zip(shared.parameters(), local.parameters()):
            ours.grad = own.grad
        if truth is None:
            optimizer.step()
        else:
            with truth.timed("optimizer"):
                optimizer.step()
            truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], samples=len(x))
            begun.set()
        step += 1
    if truth is not None:
        ended.set()
        second.join()  # whose last step would else be one of a thread that trains alone


first = threading.Thread(target=worker, args=(0, truth), name="worker 0")
second = threading.Thread(target=worker, args=(1,), name="worker 1")
first.start()
second.start()
first.join()
second.join()
truth.finish()
