"""A physics-informed network: derivatives within the loss, Adam first and then LBFGS."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(65)
model = nn.Sequential(
    nn.Linear(2, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(),
    nn.Linear(256, 1),
)  # fmt: skip
truth = Truth(model=model)
x_f = torch.rand(512, 2, requires_grad=True)
x_b, u_b = torch.rand(128, 2), torch.zeros(128, 1)


def loss_fn():
    with truth.timed("forward"):
        u = model(x_f)
    with truth.timed("backward"):
        du = torch.autograd.grad(u, x_f, torch.ones_like(u), create_graph=True)[0]
    with truth.timed("backward"):
        d2u = torch.autograd.grad(du[:, 0], x_f, torch.ones(len(x_f)), create_graph=True)[0]
    residual = du[:, 1:2] + u * du[:, 0:1] - 0.003 * d2u[:, 0:1]
    with truth.timed("forward"):
        b = model(x_b)
    return residual.square().mean() + (b - u_b).square().mean()


adam = torch.optim.Adam(model.parameters(), lr=1e-3)
steps = planned(18)
for _ in range(2 * steps // 3):
    adam.zero_grad()
    loss = loss_fn()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        adam.step()
    truth.step(loss.item(), lr={"adam": adam.param_groups[0]["lr"]})

lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
for _ in range(steps - 2 * steps // 3):
    seen = []

    def closure():
        lbfgs.zero_grad()
        loss = loss_fn()
        with truth.timed("backward"):
            loss.backward()
        seen.append(loss.item())
        return loss

    first = lbfgs.step(closure)
    mean = sum(seen) / len(seen)
    truth.step(first.item(), lr={"lbfgs": lbfgs.param_groups[0]["lr"]}, mean_loss=mean)

truth.finish(model)
