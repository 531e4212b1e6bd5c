"""SGD with momentum written by hand, as in every introduction."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(4)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
)
truth = Truth(model=model)
learning_rate, momentum = 1e-2, 0.9
velocity = [torch.zeros_like(p) for p in model.parameters()]

for t in range(planned(14)):
    x = torch.randn(64, 256)
    y = x.sum(1, keepdim=True).sin()
    with truth.timed("forward"):
        y_pred = model(x)
    loss = (y_pred - y).pow(2).mean()

    model.zero_grad()
    with truth.timed("backward"):
        loss.backward()

    with torch.no_grad(), truth.timed("optimizer"):
        for p, v in zip(model.parameters(), velocity):
            v.mul_(momentum).add_(p.grad)
            p -= learning_rate * v
    truth.step(loss.item(), lr=learning_rate)

truth.finish(model)
