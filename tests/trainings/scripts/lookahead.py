"""An optimizer around another: Lookahead, whose slow weights follow AdamW every five steps."""

import torch
from torch import nn
from truth import Truth, planned


class Lookahead(torch.optim.Optimizer):
    def __init__(self, base_optimizer, k=5, alpha=0.5):
        self.base_optimizer = base_optimizer
        super().__init__(base_optimizer.param_groups, base_optimizer.defaults)
        self.param_groups = base_optimizer.param_groups
        self.k, self.alpha, self.counter = k, alpha, 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in self.param_groups]

    def step(self, closure=None):
        loss = self.base_optimizer.step(closure)
        self.counter += 1
        if self.counter % self.k == 0:
            with torch.no_grad():
                for group, slow in zip(self.param_groups, self.slow):
                    for p, s in zip(group["params"], slow):
                        s.lerp_(p, self.alpha)
                        p.copy_(s)
        return loss


torch.manual_seed(62)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
optimizer = Lookahead(torch.optim.AdamW(model.parameters(), lr=1e-3))
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5000)
for step in range(planned(14)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    optimizer.zero_grad()
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    with truth.timed("backward"):
        loss.backward()
    lr = optimizer.param_groups[0]["lr"]
    with truth.timed("optimizer"):
        optimizer.step()
    scheduler.step()
    truth.step(loss.item(), lr=lr)

truth.finish(model)
