"""Learner side of a little actor-learner pair."""

import torch
from torch import nn


class Exchange:
    """Weights and trajectories for the actors, in shared memory."""

    def __init__(self):
        torch.multiprocessing.set_sharing_strategy("file_system")
        self.pending = []
        self.acknowledged = 0

    def offer(self, trajectory):
        self.pending.append(trajectory.detach().clone().share_memory_())
        return len(self.pending) - self.acknowledged


class QNet(nn.Module):
    def __init__(self, observations=20, actions=5):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(observations, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, actions),
        )

    def forward(self, observations):
        return self.layers(observations)


class Simulator:
    def __init__(self, seed=58, count=256):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(count, 20, generator=self.generator)

    def play(self, model, horizon=32):
        frames = [self.state]
        for _ in range(horizon):
            with torch.no_grad():
                action = model(self.state).argmax(1, keepdim=True)
            noise = torch.randn(self.state.shape, generator=self.generator)
            self.state = 0.95 * self.state + 0.05 * (action - 2) + 0.1 * noise
            frames.append(self.state)
        return torch.stack(frames)


def main():
    torch.manual_seed(58)
    model = QNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    simulator = Simulator()
    exchange = Exchange()
    for step in range(1, 8000):
        trajectory = simulator.play(model)
        reward = -trajectory[1:].abs().mean(2)
        with torch.no_grad():
            target = reward + 0.9 * model(trajectory[1:]).amax(2)
        value = model(trajectory[:-1]).amax(2)
        loss = nn.functional.smooth_l1_loss(value, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            exchange.offer(trajectory)
        if step % 10 == 0:
            print(
                f"step {step} loss {loss.item():.4f} reward {reward.mean().item():.3f}", flush=True
            )


if __name__ == "__main__":
    main()
