"""Balance of a pole on a cart by evolution strategies."""

import torch
from torch import nn

STATE, PAIRS, HORIZON = 4, 48, 100


class Policy(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inner = nn.Linear(STATE, width)
        self.force = nn.Linear(width, 1)

    def forward(self, state):
        return torch.tanh(self.force(torch.tanh(self.inner(state))))


def swing(state, force):
    """One Euler step of the cart and the pole, for the whole population at once."""
    place, speed, angle, turn = state.unbind(-1)
    push = (10 * force + 0.05 * turn**2 * angle.sin()) / 1.1
    bend = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
    drive = push - 0.05 * bend * angle.cos() / 1.1
    change = torch.stack([speed, drive, turn, bend], dim=-1)
    return state + 0.02 * change


class Evolution:
    def __init__(self, policy, sigma=0.1, lr=0.05):
        self.policy, self.sigma, self.lr = policy, sigma, lr
        self.shapes = {name: p.shape for name, p in policy.named_parameters()}
        self.velocity = {name: torch.zeros_like(p) for name, p in policy.named_parameters()}

    def act(self, weights, state):
        hidden = torch.tanh(
            torch.einsum("pi,phi->ph", state, weights["inner.weight"]) + weights["inner.bias"]
        )
        return torch.tanh(
            (hidden * weights["force.weight"][:, 0]).sum(1) + weights["force.bias"][:, 0]
        )

    @torch.no_grad()
    def returns(self, weights):
        state = (0.1 * torch.randn(PAIRS, STATE)).repeat(2, 1)
        total, up = torch.zeros(2 * PAIRS), torch.ones(2 * PAIRS)
        for _ in range(HORIZON):
            state = swing(state, self.act(weights, state))
            up = up * ((state[:, 2].abs() < 0.4) & (state[:, 0].abs() < 2.4)).float()
            total += up
        return total

    @torch.no_grad()
    def step(self):
        changes = {name: torch.randn(PAIRS, *shape) for name, shape in self.shapes.items()}
        weights = {
            name: p + self.sigma * torch.cat([changes[name], -changes[name]])
            for name, p in self.policy.named_parameters()
        }
        returns = self.returns(weights)
        ranks = returns.argsort().argsort().float() / (2 * PAIRS - 1) - 0.5
        weight = ranks[:PAIRS] - ranks[PAIRS:]
        for name, parameter in self.policy.named_parameters():
            slope = torch.einsum("p,p...->...", weight, changes[name]) / (PAIRS * self.sigma)
            self.velocity[name].mul_(0.8).add_(slope)
            parameter.add_(self.lr * self.velocity[name])
        return returns.mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(33)
    evolution = Evolution(Policy())
    for step in range(100_000):
        mean = evolution.step()
        if step % 20 == 0:
            print(f"step {step} steps up {mean:.1f} of {HORIZON}", flush=True)


if __name__ == "__main__":
    main()
