"""Proximal policy optimization on eight poles that want to fall."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

POLES, LENGTH = 8, 64


class Poles:
    """The well known cart and pole, several at a time."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.states = self.fresh(POLES)

    def fresh(self, count):
        return self.random.uniform(-0.05, 0.05, (count, 4))

    def step(self, actions):
        x, speed, angle, turn = self.states.T
        force = np.where(actions == 1, 10.0, -10.0)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * bend * cos / 1.1
        moved = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend]
        self.states = np.stack(moved, axis=1)
        fallen = (np.abs(self.states[:, 0]) > 2.4) | (np.abs(self.states[:, 2]) > 0.21)
        self.states[fallen] = self.fresh(fallen.sum())
        return fallen

    def observe(self):
        return torch.tensor(self.states, dtype=torch.float32)


def mlp(outputs, width=64):
    return nn.Sequential(
        nn.Linear(4, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, outputs),
    )


class Agent:
    def __init__(self):
        self.policy, self.critic = mlp(2), mlp(1)
        parameters = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def log_prob(self, observations, actions):
        return Categorical(logits=self.policy(observations)).log_prob(actions)

    @torch.no_grad()
    def collect(self, poles):
        observations, actions, fallen = [], [], []
        for _ in range(LENGTH):
            observations.append(poles.observe())
            actions.append(Categorical(logits=self.policy(observations[-1])).sample())
            fallen.append(torch.tensor(poles.step(actions[-1].numpy())))
        observations, fallen = torch.stack(observations), torch.stack(fallen).float()
        values = self.critic(observations).squeeze(-1)
        after, gain = self.critic(poles.observe()).squeeze(-1), torch.zeros(POLES)
        gains = torch.zeros_like(values)
        for index in reversed(range(LENGTH)):
            alive = 1 - fallen[index]
            gain = alive - values[index] + alive * (0.98 * after + 0.98 * 0.95 * gain)
            gains[index], after = gain, values[index]
        returns = gains + values
        return [
            part.flatten(0, 1) for part in (observations, torch.stack(actions), gains, returns)
        ], fallen

    def update(self, observations, actions, gains, returns, epochs=4, clip=0.2):
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        for _ in range(epochs):
            for rows in torch.randperm(len(actions)).split(128):
                old = self.log_prob(observations[rows], actions[rows])
                new = self.log_prob(observations[rows], actions[rows])
                ratio = torch.exp(new - old)
                bounded = ratio.clamp(1 - clip, 1 + clip)
                surrogate = torch.min(ratio * gains[rows], bounded * gains[rows]).mean()
                error = nn.functional.mse_loss(
                    self.critic(observations[rows]).squeeze(-1), returns[rows]
                )
                loss = 0.5 * error - surrogate
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(10)
    poles, agent = Poles(10), Agent()
    for step in range(1, 1_000_000):
        rollout, fallen = agent.collect(poles)
        loss = agent.update(*rollout)
        if step % 5 == 0:
            length = LENGTH * POLES / max(1.0, fallen.sum().item())
            print(f"step {step} loss {loss:.3f} length {length:.0f}", flush=True)


if __name__ == "__main__":
    main()
