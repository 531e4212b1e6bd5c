"""MAML: for each task an inner step through the graph, then one outer step over all tasks."""

import torch
from torch import nn
from torch.func import functional_call
from truth import Truth, planned

torch.manual_seed(64)
TASKS, INNER_LR = 3, 0.05
net = nn.Sequential(
    nn.Linear(64, 768), nn.Tanh(), nn.Linear(768, 768), nn.Tanh(), nn.Linear(768, 1)
)
truth = Truth(net=net)
meta_opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for it in range(planned(14)):
    meta_opt.zero_grad()
    outer = 0.0
    for _ in range(TASKS):
        w = torch.randn(64)
        xs, xq = torch.randn(48, 64), torch.randn(48, 64)
        ys, yq = (xs @ w).sin(), (xq @ w).sin()
        params = dict(net.named_parameters())
        with truth.timed("forward"):
            pred = functional_call(net, params, xs)
        inner = nn.functional.mse_loss(pred.squeeze(1), ys)
        with truth.timed("backward"):
            grads = torch.autograd.grad(inner, tuple(params.values()), create_graph=True)
        fast = {k: p - INNER_LR * g for (k, p), g in zip(params.items(), grads)}
        with truth.timed("forward"):
            pred = functional_call(net, fast, xq)
        loss = nn.functional.mse_loss(pred.squeeze(1), yq) / TASKS
        with truth.timed("backward"):
            loss.backward()
        outer += loss.item()
    with truth.timed("optimizer"):
        meta_opt.step()
    truth.step(outer, lr=meta_opt.param_groups[0]["lr"])

truth.finish(net)
