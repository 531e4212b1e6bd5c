"""Physics-informed network for a damped oscillator: x'' + 0.4 x' + 4 x = 0."""

import torch
from torch import nn

torch.set_default_dtype(torch.float64)


class Solution(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, time):
        return self.layers(time)


def derivative(values, time):
    return torch.autograd.grad(values.sum(), time, create_graph=True)[0]


def residual(model, time):
    position = model(time)
    speed = derivative(position, time)
    acceleration = derivative(speed, time)
    return acceleration + 0.4 * speed + 4 * position


class Objective:
    def __init__(self, model, optimizer, points=200):
        self.model = model
        self.optimizer = optimizer
        self.time = torch.linspace(0, 8, points).unsqueeze(1).requires_grad_()
        self.start = torch.zeros(1, 1, requires_grad=True)

    def __call__(self):
        self.optimizer.zero_grad()
        physics = residual(self.model, self.time).pow(2).mean()
        position = self.model(self.start)
        speed = derivative(position, self.start)
        boundary = (position - 1).pow(2).mean() + speed.pow(2).mean()
        loss = physics + 10 * boundary
        loss.backward()
        return loss


def main():
    torch.manual_seed(30)
    model = Solution()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=10, line_search_fn="strong_wolfe")
    objective = Objective(model, optimizer)
    for step in range(1_000_000):
        loss = optimizer.step(objective)
        print(f"step {step} loss {loss.item():.3e}", flush=True)


if __name__ == "__main__":
    main()
