"""A hypernetwork: it makes the weights with which another network is called by functional_call."""

import torch
from torch import nn
from torch.func import functional_call
from truth import Truth, planned

torch.manual_seed(207)
TASKS = 4
target = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 1)).requires_grad_(False)
shapes = {name: p.shape for name, p in target.named_parameters()}


class HyperNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TASKS, 64)
        self.body = nn.Sequential(nn.Linear(64, 512), nn.ReLU())
        self.out = nn.Linear(512, sum(shape.numel() for shape in shapes.values()))

    def forward(self, task):
        flat, at, weights = self.out(self.body(self.embedding(task))), 0, {}
        for name, shape in shapes.items():
            weights[name] = flat[at : at + shape.numel()].view(shape)
            at += shape.numel()
        return weights


hyper = HyperNet()
truth = Truth(hyper=hyper)
truth.learns(target.parameters())
optimizer = torch.optim.Adam(hyper.parameters(), lr=1e-3)
for step in range(planned(14)):
    loss = 0.0
    optimizer.zero_grad()
    for task in range(TASKS):
        x = torch.randn(64, 32)
        y = x[:, task : task + 1].sin()
        with truth.timed("forward"):
            weights = hyper(torch.tensor(task))
        with truth.timed("forward"):
            out = functional_call(target, weights, (x,))
        loss = loss + nn.functional.mse_loss(out, y) / TASKS
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(hyper)
