"""Adversarial training by PGD: the input is attacked by three passes of its own before each step."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(63)
EPS, ALPHA, ITERATIONS = 0.1, 0.04, 3
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def attack(X, y):
    delta = torch.zeros_like(X).uniform_(-EPS, EPS).requires_grad_(True)
    for _ in range(ITERATIONS):
        with truth.timed("forward"):
            output = model(X + delta)
        loss = nn.functional.cross_entropy(output, y)
        with truth.timed("backward"):
            loss.backward()
        grad = delta.grad.detach()
        delta.data = torch.clamp(delta + ALPHA * torch.sign(grad), -EPS, EPS)
        delta.grad.zero_()
    return delta.detach()


for step in range(planned(14)):
    X, y = torch.randn(48, 512), torch.randint(0, 10, (48,))
    delta = attack(X, y)
    with truth.timed("forward"):
        output = model(X + delta)
    loss = nn.functional.cross_entropy(output, y)
    opt.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        opt.step()
    truth.step(loss.item(), lr=opt.param_groups[0]["lr"])

truth.finish(model)
