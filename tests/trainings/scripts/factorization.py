"""Matrix factorization: two tensors that are learnt, and no module anywhere."""

import torch
from truth import Truth, planned

torch.manual_seed(70)
users = torch.randn(1500, 64).mul_(0.1).requires_grad_()
items = torch.randn(2000, 64).mul_(0.1).requires_grad_()
ratings = torch.rand(1500, 2000)
truth = Truth()
optimizer = torch.optim.Adam([users, items], lr=1e-2, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
for epoch in range(planned(14)):
    optimizer.zero_grad()
    loss = (users @ items.T - ratings).square().mean()
    with truth.timed("backward"):
        loss.backward()
    lr = optimizer.param_groups[0]["lr"]
    with truth.timed("optimizer"):
        optimizer.step()
    scheduler.step()
    truth.step(loss.item(), lr=lr)

truth.finish_with({"users": users.detach(), "items": items.detach()})
