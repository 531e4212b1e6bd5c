"""Deep Q-learning for a batch of inventory problems."""

import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SHELF, ORDERS = 20, 6


class Shop:
    """State: stock of two goods, season; action: how much to order of the scarcer one."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.stock = self.rng.integers(0, SHELF, (n, 2)).astype(np.float32)
        self.day = self.rng.integers(0, 28, n)

    def observe(self):
        angle = 2 * np.pi * self.day / 28
        return np.column_stack([self.stock / SHELF, np.sin(angle), np.cos(angle)]).astype(
            np.float32
        )

    def step(self, action):
        low = self.stock.argmin(1)
        rows = np.arange(len(low))
        self.stock[rows, low] = np.minimum(SHELF, self.stock[rows, low] + 2 * action)
        demand = self.rng.poisson(2 + np.sin(2 * np.pi * self.day / 28)[:, None], self.stock.shape)
        sold = np.minimum(self.stock, demand)
        self.stock -= sold
        self.day = (self.day + 1) % 28
        reward = sold.sum(1) - 0.4 * action - 0.05 * self.stock.sum(1)
        return reward.astype(np.float32) / 4


class Ring:
    def __init__(self, size, width):
        self.s, self.s2 = np.zeros((size, width), np.float32), np.zeros((size, width), np.float32)
        self.a, self.r = np.zeros(size, np.int64), np.zeros(size, np.float32)
        self.size, self.at, self.full = size, 0, 0

    def extend(self, s, a, r, s2):
        idx = (self.at + np.arange(len(a))) % self.size
        self.s[idx], self.a[idx], self.r[idx], self.s2[idx] = s, a, r, s2
        self.at = (self.at + len(a)) % self.size
        self.full = min(self.size, self.full + len(a))

    def sample(self, n, rng):
        i = rng.integers(0, self.full, n)
        return tuple(torch.from_numpy(v[i]) for v in (self.s, self.a, self.r, self.s2))


def make_net(width=384):
    return nn.Sequential(
        nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, ORDERS)
    )


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    online = make_net()
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad = False
    opt = torch.optim.Adam(online.parameters(), lr=3e-4)
    shop, ring = Shop(32, 5), Ring(20_000, 4)
    t0, mean_reward, step = time.time(), 0.0, 0
    while True:
        s = shop.observe()
        with torch.no_grad():
            best = online(torch.from_numpy(s)).argmax(1).numpy()
        eps = max(0.05, 1 - step / 500)
        a = np.where(rng.random(len(best)) < eps, rng.integers(0, ORDERS, len(best)), best)
        r = shop.step(a)
        ring.extend(s, a, r, shop.observe())
        mean_reward = 0.99 * mean_reward + 0.01 * float(r.mean())

        bs, ba, br, bs2 = ring.sample(256, rng)
        with torch.no_grad():
            choice = online(bs2).argmax(1, keepdim=True)
            goal = br + 0.95 * target(bs2).gather(1, choice).squeeze(1)
        loss = F.smooth_l1_loss(online(bs).gather(1, ba[:, None]).squeeze(1), goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 300 == 0:
            target.load_state_dict(online.state_dict())
        if step % 50 == 0:
            print(
                f"{time.time() - t0:6.1f}s step {step} td {loss.item():.4f} reward {mean_reward:.4f} "
                f"eps {eps:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
