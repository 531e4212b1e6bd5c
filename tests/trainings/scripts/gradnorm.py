"""GradNorm: tasks weighted by learnt numbers, whose own loss is of the norms of gradients."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(93)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU()
        )
        self.heads = nn.ModuleList([nn.Linear(512, 32) for _ in range(3)])

    def forward(self, x):
        h = self.shared(x)
        return [head(h) for head in self.heads]


net = Net()
truth = Truth(net=net)
weights = torch.ones(3, requires_grad=True)
optimizer1 = torch.optim.Adam(net.parameters(), lr=1e-3)
optimizer2 = torch.optim.Adam([weights], lr=1e-2)
initial = None
for step in range(planned(14)):
    x, ys = torch.randn(64, 256), [torch.randn(64, 32) for _ in range(3)]
    with truth.timed("forward"):
        outs = net(x)
    losses = torch.stack([nn.functional.mse_loss(o, y) for o, y in zip(outs, ys)])
    initial = losses.detach() if initial is None else initial
    weighted = weights @ losses
    optimizer1.zero_grad()
    with truth.timed("backward"):
        weighted.backward(retain_graph=True)
    last = net.shared[-2].weight
    norms = []
    for i in range(3):
        with truth.timed("backward"):
            g = torch.autograd.grad(
                weights[i] * losses[i], last, retain_graph=True, create_graph=True
            )[0]
        norms.append(g.norm())
    norms = torch.stack(norms)
    ratio = losses.detach() / initial
    constant = (norms.mean() * (ratio / ratio.mean()) ** 0.12).detach()
    gradnorm_loss = (norms - constant).abs().sum()
    optimizer2.zero_grad()
    with truth.timed("backward"):
        gradnorm_loss.backward()
    with truth.timed("optimizer"):
        optimizer1.step()
    with truth.timed("optimizer"):
        optimizer2.step()
    weights.data.mul_(3 / weights.data.sum())
    truth.step(
        {"weighted": weighted.item(), "gradnorm": gradnorm_loss.item()},
        lr={
            "optimizer1": optimizer1.param_groups[0]["lr"],
            "optimizer2": optimizer2.param_groups[0]["lr"],
        },
    )

truth.finish_with({**net.state_dict(), "weights": weights.detach()})
