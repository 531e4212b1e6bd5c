"""DQN with a prioritized replay memory for a simulated lander."""
import copy
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
OBS, ACTIONS, ENVS, BATCH, HIDDEN = (64, 6, 1024, 1024, 2048) if BIG else (16, 4, 32, 64, 64)
MEMORY, GAMMA, LIMIT = (1_000_000 if BIG else 5000), 0.97, 150


class Lander:
    """Many landers at once; a thrust moves the state, near the pad is rewarded."""

    def __init__(self):
        self.push = torch.randn(ACTIONS, OBS, device=DEVICE) * 0.3
        self.state = torch.randn(ENVS, OBS, device=DEVICE)

    def act(self, action):
        before = self.state
        after = 0.95 * before + self.push[action] + 0.05 * torch.randn_like(before)
        reward = -after[:, :8].square().mean(1).clamp(max=4.0)
        self.state = after
        return before, reward, after


class Replay:
    def __init__(self):
        self.obs = torch.zeros(MEMORY, OBS, device=DEVICE)
        self.next = torch.zeros(MEMORY, OBS, device=DEVICE)
        self.action = torch.zeros(MEMORY, dtype=torch.long, device=DEVICE)
        self.reward = torch.zeros(MEMORY, device=DEVICE)
        self.priority = torch.zeros(MEMORY, device=DEVICE)
        self.cursor, self.filled = 0, 0

    def add(self, obs, action, reward, after):
        at = (torch.arange(ENVS, device=DEVICE) + self.cursor) % MEMORY
        self.obs[at], self.action[at], self.reward[at], self.next[at] = obs, action, reward, after
        self.priority[at] = 1.0
        self.cursor, self.filled = (self.cursor + ENVS) % MEMORY, min(MEMORY, self.filled + ENVS)

    def sample(self):
        return torch.multinomial(self.priority[: self.filled], BATCH, replacement=True)

    def update(self, index, error):
        for i in range(len(index)):
            slot = index[i].item()
            self.priority[slot] = min(abs(error[i].item()), 2.0) + 0.01


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    world, memory = Lander(), Replay()
    q = nn.Sequential(nn.Linear(OBS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                      nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, ACTIONS)).to(DEVICE)
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        with torch.no_grad():
            greedy = q(world.state).argmax(1)
            explore = torch.rand(ENVS, device=DEVICE) < 0.1
            action = torch.where(explore, torch.randint(0, ACTIONS, (ENVS,), device=DEVICE), greedy)
            memory.add(world.state, action, *world.act(action)[1:])
        index = memory.sample()
        with torch.no_grad():
            goal = memory.reward[index] + GAMMA * target(memory.next[index]).max(1).values
        value = q(memory.obs[index]).gather(1, memory.action[index].unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        memory.update(index, (value - goal).detach())
        if step % 200 == 0:
            target.load_state_dict(q.state_dict())
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
