"""A model run a few times without gradients before the first step, to warm up and to sanity-check."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(35)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
with torch.no_grad(), truth.timed("evaluation"):
    for _ in range(8):
        model(torch.randn(64, 512))
with torch.inference_mode(), truth.timed("evaluation"):
    print("sanity check:", model(torch.randn(64, 512)).mean().item())

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(planned(14)):
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
