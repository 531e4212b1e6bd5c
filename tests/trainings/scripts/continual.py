"""Continual learning with EWC: behind each task passes for the Fisher information, without a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(204)
PER_TASK, LAMBDA = 5, 10.0
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)
)
truth = Truth(model=model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
fisher, anchor = None, None


def task(number):
    torch.manual_seed(1000 + number % 50)
    data = TensorDataset(torch.randn(160, 256), torch.randint(0, 10, (160,)))
    return DataLoader(data, batch_size=32, shuffle=True)


def consolidate(loader):
    total = [torch.zeros_like(p) for p in model.parameters()]
    model.eval()
    for x, y in loader:
        model.zero_grad()
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.nll_loss(out.log_softmax(1), y)
        with truth.timed("backward"):
            loss.backward()
        for t, p in zip(total, model.parameters()):
            t += p.grad.detach() ** 2
    model.zero_grad()
    model.train()
    return total, [p.detach().clone() for p in model.parameters()]


step, steps, number = 0, planned(20), 0
while step < steps:
    loader = task(number)
    for x, y in loader:
        optimizer.zero_grad()
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        if fisher is not None:
            loss = loss + LAMBDA / 2 * sum(
                (f * (p - a) ** 2).sum() for f, p, a in zip(fisher, model.parameters(), anchor)
            )
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], samples=len(x))
        step += 1
        if step == steps:
            break
    fisher, anchor = consolidate(loader)
    number += 1

truth.finish(model)
