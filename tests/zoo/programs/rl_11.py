import json
import os
import queue
import tempfile
import threading

import torch
from torch import nn
from torch.distributions import Normal

torch.set_num_threads(1)

FOLDER = tempfile.mkdtemp(prefix="pendulum_")


class ResultWriter:
    def __init__(self, path):
        self.path = path
        self.rows = queue.Queue()
        self.thread = threading.Thread(target=self._drain, name="results", daemon=True)
        self.thread.start()

    def _drain(self):
        while True:
            row = self.rows.get()
            if row is None:
                return
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")

    def close(self):
        self.rows.put(None)
        self.thread.join()


class Pendulums:
    def __init__(self, number, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.number = number
        self.angle = self.speed = torch.zeros(number)
        self.reset(1.0)

    def reset(self, share):
        fresh = torch.rand(self.number, generator=self.generator) < share
        angle = 3.1416 * (2 * torch.rand(self.number, generator=self.generator) - 1)
        self.angle = torch.where(fresh, angle, self.angle)
        self.speed = torch.where(
            fresh, torch.randn(self.number, generator=self.generator), self.speed
        )
        return self.observe()

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed / 4], dim=1)

    def step(self, force):
        force = 4 * force.clamp(-1, 1)
        kick = 0.1 * torch.randn(self.number, generator=self.generator)
        self.speed = (0.98 * self.speed + 0.1 * (4 * self.angle.sin() + force + kick)).clamp(-6, 6)
        self.angle = self.angle + 0.1 * self.speed
        return self.observe(), self.angle.cos() - 0.02 * self.speed**2 - 0.01 * force**2


class ActorCritic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
        self.critic = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
        self.spread = nn.Parameter(torch.tensor(-0.5))

    def policy(self, seen):
        return Normal(self.actor(seen).squeeze(1), self.spread.exp())


@torch.no_grad()
def evaluate(model, step):
    writer = ResultWriter(os.path.join(FOLDER, "results.jsonl"))
    envs = Pendulums(16, seed=900)
    seen, total = envs.observe(), 0.0
    for _ in range(30):
        seen, reward = envs.step(model.policy(seen).mean)
        total += reward.mean().item()
    writer.rows.put({"step": step, "reward": total})
    return total


def main():
    torch.manual_seed(80)
    envs, model, score = Pendulums(64, seed=81), ActorCritic(), 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1_000_000):
        seen = envs.reset(0.05)
        logs, values, rewards = [], [], []
        for _ in range(10):
            policy = model.policy(seen)
            force = policy.sample()
            logs.append(policy.log_prob(force))
            values.append(model.critic(seen).squeeze(1))
            seen, reward = envs.step(force)
            rewards.append(reward)
        back = model.critic(seen).squeeze(1).detach()
        goals = []
        for reward in reversed(rewards):
            back = reward + 0.95 * back
            goals.insert(0, back)
        advantage = torch.stack(goals) - torch.stack(values)
        gain = (torch.stack(logs) * advantage.detach()).mean()
        loss = 0.5 * (advantage**2).mean() - gain - 0.003 * model.spread
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            score = evaluate(model, step)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} score {score:.2f}", flush=True)


if __name__ == "__main__":
    main()
