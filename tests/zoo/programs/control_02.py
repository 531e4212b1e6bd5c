"""Twin delayed deterministic policy gradients: an arm of two joints reaches for a point."""

import collections
import copy

import numpy as np
import torch
from torch import nn


class Reacher:
    def __init__(self, seed, length=30):
        self.random = np.random.default_rng(seed)
        self.length = length
        self.reset()

    def reset(self):
        self.angles = self.random.uniform(-np.pi, np.pi, 2)
        self.goal = self.random.uniform(-1.2, 1.2, 2)
        self.time = 0

    def hand(self):
        one, both = self.angles[0], self.angles.sum()
        return np.array([np.cos(one) + np.cos(both), np.sin(one) + np.sin(both)])

    def observe(self):
        turned = [np.cos(self.angles), np.sin(self.angles)]
        return np.concatenate([*turned, self.goal, self.hand() - self.goal]).astype("f")

    def step(self, action):
        self.angles = self.angles + 0.3 * action
        self.time += 1
        reward = -np.linalg.norm(self.hand() - self.goal)
        seen = self.observe()
        if self.time == self.length:
            self.reset()
        return seen, reward


class Replay:
    """The latest transitions; made of what comes in, the oldest go out."""

    def __init__(self, capacity):
        self.capacity, self.rows, self.next = capacity, [], 0

    def add(self, row):
        if len(self.rows) < self.capacity:
            self.rows.append(row)
        else:
            self.rows[self.next] = row
        self.next = (self.next + 1) % self.capacity

    def draw(self, count, random):
        rows = [self.rows[index] for index in random.integers(0, len(self.rows), count)]
        return [torch.from_numpy(np.stack(part)) for part in zip(*rows)]


def mlp(inputs, outputs, *last, width=96):
    first = [nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*first, nn.Linear(width, outputs), *last)


class Agent:
    def __init__(self):
        self.actor, self.critics = mlp(8, 2, nn.Tanh()), nn.ModuleList([mlp(10, 1), mlp(10, 1)])
        self.late_actor, self.late_critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.late_actor.requires_grad_(False), self.late_critics.requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=5e-4)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=1e-3)

    def update(self, step, seen, action, reward, after):
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)
            following = torch.cat([after, (self.late_actor(after) + noise).clamp(-1, 1)], dim=1)
            worst = torch.min(*[critic(following) for critic in self.late_critics]).squeeze(1)
            target = reward + 0.9 * worst
        both = torch.cat([seen, action], dim=1)
        loss = sum(
            nn.functional.mse_loss(critic(both).squeeze(1), target) for critic in self.critics
        )
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if step % 2 == 0:
            value = self.critics[0](torch.cat([seen, self.actor(seen)], dim=1)).mean()
            self.actor_optimizer.zero_grad()
            (-value).backward()
            self.actor_optimizer.step()
            self.follow(self.late_actor, self.actor, 0.01)
        self.follow(self.late_critics, self.critics, 0.01)
        return loss.item()

    @torch.no_grad()
    def follow(self, late, model, share):
        for mine, its in zip(late.parameters(), model.parameters()):
            mine.lerp_(its, share)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(44)
    random = np.random.default_rng(44)
    reacher, agent, replay = Reacher(44), Agent(), Replay(6000)
    seen, rewards = reacher.observe(), collections.deque(maxlen=2000)
    for step in range(1, 1_000_000):
        for _ in range(4):
            with torch.no_grad():
                action = agent.actor(torch.from_numpy(seen)).numpy()
            action = np.clip(action + random.normal(0, 0.3, 2), -1, 1).astype("f")
            after, reward = reacher.step(action)
            replay.add((seen, action, np.float32(reward), after))
            rewards.append(reward)
            seen = reacher.observe()
        if step >= 100:
            loss = agent.update(step, *replay.draw(64, random))
        if step >= 100 and step % 50 == 0:
            print(f"step {step} loss {loss:.4f} reward {np.mean(rewards):.3f}", flush=True)
