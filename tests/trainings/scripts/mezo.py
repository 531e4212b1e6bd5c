"""Zeroth-order fine-tuning after MeZO: two forward passes and no backward pass in each step."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(74)
EPS, LR = 1e-3, 1e-4
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)


def perturb(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data.add_(torch.randn(p.shape, generator=generator), alpha=scale * EPS)


@torch.no_grad()
def zo_forward(x, y):
    with truth.timed("forward"):
        out = model(x)
    return nn.functional.cross_entropy(out, y)


for step in range(planned(14)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    perturb(step, 1)
    loss1 = zo_forward(x, y)
    perturb(step, -2)
    loss2 = zo_forward(x, y)
    perturb(step, 1)
    projected = ((loss1 - loss2) / (2 * EPS)).item()
    generator = torch.Generator().manual_seed(step)
    for p in model.parameters():
        p.data.add_(torch.randn(p.shape, generator=generator), alpha=-LR * projected)
    truth.step(loss1.item(), lr=LR)

truth.finish(model)
