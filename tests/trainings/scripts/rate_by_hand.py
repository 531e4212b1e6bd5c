"""The rate is computed and set by the script at each step: warm-up, then a slow decay."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(39)
WARMUP, PEAK = 6, 2e-3
model = nn.Sequential(
    nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
optimizer = torch.optim.Adam(model.parameters(), lr=PEAK)


def adjust_learning_rate(optimizer, step):
    lr = PEAK * min((step + 1) / WARMUP, 0.999 ** (step - WARMUP))
    for group in optimizer.param_groups:
        group["lr"] = lr


for step in range(planned(16)):
    adjust_learning_rate(optimizer, step)
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
