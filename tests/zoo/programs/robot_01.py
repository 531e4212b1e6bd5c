"""A robot arm learns to reach: simulated arms run in a pool, an actor-critic learns from them."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ARMS, HORIZON = 8, 8


class Arm:
    """Two joints in a plane; the reward is how near the hand is to the goal."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.joints = self.rng.uniform(-1, 1, 2)
        self.goal = self.rng.uniform(-1.2, 1.2, 2)
        self.age = 0

    def observe(self):
        return np.concatenate([np.sin(self.joints), np.cos(self.joints), self.goal, self.hand()])

    def hand(self):
        angles = np.cumsum(self.joints)
        return np.array([np.cos(angles).sum(), np.sin(angles).sum()])

    def step(self, action):
        self.joints = self.joints + 0.3 * np.clip(action, -1, 1)
        self.age += 1
        reward = -np.linalg.norm(self.hand() - self.goal)
        if self.age % 40 == 0:
            self.goal = self.rng.uniform(-1.2, 1.2, 2)
        return self.observe(), reward


class Arms:
    def __init__(self):
        self.pool = ThreadPoolExecutor(4)
        self.arms = [Arm(seed) for seed in range(ARMS)]

    def observe(self):
        return torch.tensor(np.stack([arm.observe() for arm in self.arms]), dtype=torch.float32)

    def step(self, actions):
        jobs = [self.pool.submit(arm.step, act) for arm, act in zip(self.arms, actions.numpy())]
        while not all(job.done() for job in jobs):
            time.sleep(0.02)
        rewards = [job.result()[1] for job in jobs]
        return self.observe(), torch.tensor(rewards, dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.mean = nn.Linear(width, 2)
        self.value = nn.Linear(width, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return self.mean(hidden), self.value(hidden).squeeze(-1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(90)
    arms, model = Arms(), ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen, average = arms.observe(), -1.5
    for step in range(100_000):
        values, chances, rewards = [], [], []
        for _ in range(HORIZON):
            mean, value = model(seen)
            policy = torch.distributions.Normal(mean, 0.4)
            action = policy.sample()
            seen, reward = arms.step(action)
            values.append(value)
            chances.append(policy.log_prob(action).sum(-1))
            rewards.append(reward)
        with torch.no_grad():
            target = model(seen)[1]
        targets = []
        for reward in reversed(rewards):
            target = reward + 0.9 * target
            targets.insert(0, target)
        targets, values, chances = map(torch.stack, (targets, values, chances))
        advantage = (targets - values).detach()
        loss = -(chances * advantage).mean() + 0.5 * F.mse_loss(values, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average = 0.98 * average + 0.02 * torch.stack(rewards).mean().item()
        if step % 10 == 0:
            print(f"step {step} reward {average:.3f} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
