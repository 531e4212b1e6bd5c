"""A neural ODE: the adjoint solved in a custom Function's backward, which calls the model again."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(202)
STEPS = 6


class Dynamics(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 512), nn.Tanh(), nn.Linear(512, width))

    def forward(self, t, y):
        return self.net(y) * (1 - t)


class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y, *parameters):
        ctx.func = func
        with torch.no_grad():
            for i in range(STEPS):
                y = y + func(i / STEPS, y) / STEPS
        ctx.save_for_backward(y, *parameters)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, *parameters = ctx.saved_tensors
        sums = [torch.zeros_like(p) for p in parameters]
        for i in reversed(range(STEPS)):
            with torch.enable_grad():
                y = y.detach().requires_grad_()
                dy = ctx.func(i / STEPS, y)
                dgrad, *dparams = torch.autograd.grad(dy, (y, *parameters), grad)
            y = (y - dy / STEPS).detach()
            grad = grad + dgrad / STEPS
            sums = [s + d / STEPS for s, d in zip(sums, dparams)]
        return None, grad, *sums


class NeuralODE(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(64, 128)
        self.func = Dynamics()
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        y = self.stem(x)
        return self.head(Solve.apply(self.func, y, *self.func.parameters()))


data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = NeuralODE()
truth = Truth(model=model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step, steps = 0, planned(14)
while step < steps:
    for x, y in loader:
        optimizer.zero_grad()
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], samples=len(x))
        step += 1
        if step == steps:
            break

truth.finish(model)
