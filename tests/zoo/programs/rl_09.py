"""Double DQN on a vectorised catch game: a ball drifts down, a paddle must be below it."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CatchVec:
    H, W, SCALE = 8, 8, 6

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.ball = np.zeros((n, 2), dtype=int)
        self.drift = np.zeros(n, dtype=int)
        self.paddle = np.zeros(n, dtype=int)
        self._reset(np.arange(n))

    def _reset(self, idx):
        self.ball[idx, 0] = 0
        self.ball[idx, 1] = self.rng.integers(0, self.W, len(idx))
        self.drift[idx] = self.rng.integers(-1, 2, len(idx))
        self.paddle[idx] = self.rng.integers(0, self.W, len(idx))

    def observe(self):
        board = np.zeros((self.n, 2, self.H, self.W), dtype=np.uint8)
        rows = np.arange(self.n)
        board[rows, 0, self.ball[:, 0], self.ball[:, 1]] = 255
        board[rows, 0, self.H - 1, self.paddle] = 255
        prev = np.clip(self.ball[:, 1] - self.drift, 0, self.W - 1)
        board[rows, 1, np.maximum(self.ball[:, 0] - 1, 0), prev] = 255
        return board.repeat(self.SCALE, 2).repeat(self.SCALE, 3)

    def step(self, action):
        self.paddle = np.clip(self.paddle + action - 1, 0, self.W - 1)
        self.ball[:, 0] += 1
        side = self.ball[:, 1] + self.drift
        bounce = (side < 0) | (side >= self.W)
        self.drift[bounce] *= -1
        self.ball[:, 1] += self.drift
        done = self.ball[:, 0] == self.H - 1
        caught = np.abs(self.paddle - self.ball[:, 1]) <= 1
        reward = np.where(done, np.where(caught, 1.0, -1.0), 0.0).astype(np.float32)
        after = self.observe()
        self._reset(np.flatnonzero(done))
        return after, reward, done


class Replay:
    def __init__(self, capacity, shape, rng):
        self.capacity, self.rng, self.pos, self.size = capacity, rng, 0, 0
        self.obs = np.empty((capacity, *shape), dtype=np.uint8)
        self.after = np.empty((capacity, *shape), dtype=np.uint8)
        self.action = np.empty(capacity, dtype=np.int64)
        self.reward = np.empty(capacity, dtype=np.float32)
        self.done = np.empty(capacity, dtype=np.float32)
        self.stores = (self.obs, self.action, self.reward, self.after, self.done)

    def add(self, *columns):
        where = (self.pos + np.arange(len(columns[0]))) % self.capacity
        for store, col in zip(self.stores, columns):
            store[where] = col
        self.pos = (self.pos + len(where)) % self.capacity
        self.size = min(self.size + len(where), self.capacity)

    def sample(self, k):
        i = self.rng.integers(0, self.size, k)
        s, a, r, s2, d = (torch.from_numpy(store[i]) for store in self.stores)
        return s.float().div_(255), a, r, s2.float().div_(255), d


def build_net():
    eyes = [nn.Conv2d(2, 16, 6, 6), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    mind = [nn.Flatten(), nn.Linear(16 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, 3)]
    return nn.Sequential(*eyes, *mind)


def main(steps=30000, envs=16, gamma=0.97, batch=64, learn_start=60, sync_every=100):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    env, memory = CatchVec(envs, seed=2), Replay(80000, (2, 48, 48), rng)
    online = build_net()
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), lr=1e-3)
    obs, ends, loss_avg = env.observe(), [], 0.0

    for step in range(1, steps + 1):
        eps = max(0.05, 1.0 - step / 1000)
        with torch.no_grad():
            greedy = online(torch.from_numpy(obs).float().div_(255)).argmax(1).numpy()
        action = np.where(rng.random(envs) < eps, rng.integers(0, 3, envs), greedy)
        after, reward, done = env.step(action)
        memory.add(obs, action, reward, after, done)
        ends.extend(reward[done])
        del ends[:-200]
        obs = np.where(done[:, None, None, None], env.observe(), after)

        if step >= learn_start:
            s, a, r, s2, d = memory.sample(batch)
            with torch.no_grad():
                pick = online(s2).argmax(1, keepdim=True)
                goal = r + gamma * (1 - d) * target(s2).gather(1, pick).squeeze(1)
            q = online(s).gather(1, a[:, None]).squeeze(1)
            loss = F.smooth_l1_loss(q, goal)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(online.parameters(), 10.0)
            opt.step()
            loss_avg = 0.99 * loss_avg + 0.01 * loss.item()
            if step % sync_every == 0:
                target.load_state_dict(online.state_dict())
        if step % 50 == 0:
            print(f"step {step} loss {loss_avg:.4f} return {np.mean(ends):+.2f}", flush=True)


if __name__ == "__main__":
    main()
