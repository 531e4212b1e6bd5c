"""A trunk with a head per task, called one by one; a head is added when its data comes."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(37)
trunk = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
depth, edges, labels = nn.Linear(512, 64), nn.Linear(512, 64), nn.Linear(512, 10)
truth = Truth(trunk=trunk, depth=depth, edges=edges, labels=labels)
parts = (trunk, depth, edges, labels)
optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-3)
steps = planned(16)

for step in range(steps):
    x = torch.randn(128, 128)
    with truth.timed("forward"):
        hidden = trunk(x)
    with truth.timed("forward"):
        loss = (depth(hidden) - x[:, :64]).square().mean()
    with truth.timed("forward"):
        loss = loss + (edges(hidden) - x[:, 64:]).abs().mean()
    if step >= min(steps // 2, 8):
        y = torch.randint(0, 10, (128,))
        with truth.timed("forward"):
            out = labels(hidden)
        loss = loss + nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(*parts)
