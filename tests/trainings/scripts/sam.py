"""Sharpness-aware minimization, after davda54/sam: two passes and two half steps for each batch."""

import torch
from torch import nn
from truth import Truth, planned


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.norm(torch.stack([g.norm(p=2) for g in grads]), p=2)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()


torch.manual_seed(61)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
for step in range(planned(14)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    with truth.timed("backward"):
        loss.backward()
    optimizer.first_step(zero_grad=True)
    with truth.timed("forward"):
        out = model(x)
    second = nn.functional.cross_entropy(out, y)
    with truth.timed("backward"):
        second.backward()
    optimizer.second_step(zero_grad=True)
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], mean_loss=second.item())

truth.finish(model)
