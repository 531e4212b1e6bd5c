"""SimCLR-like training on synthetic signals; the two views are made ahead of need."""

import collections
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Signals:
    """Latent class -> mixture of sines; a view is a random crop with gain and noise."""

    def __init__(self, n=4000, length=320, crop=256, seed=13):
        self.rng = np.random.default_rng(seed)
        base = self.rng.normal(size=(20, length)).cumsum(1)
        base = (base - base.mean(1, keepdims=True)) / base.std(1, keepdims=True)
        self.labels = self.rng.integers(0, 20, size=n)
        self.x = (base[self.labels] + 0.3 * self.rng.normal(size=(n, length))).astype(np.float32)
        self.length, self.crop = length, crop

    def view(self, rows):
        at = self.rng.integers(0, self.length - self.crop, size=len(rows))
        cols = at[:, None] + np.arange(self.crop)
        gain = self.rng.uniform(0.7, 1.3, size=(len(rows), 1))
        out = self.x[rows[:, None], cols] * gain + 0.2 * self.rng.normal(size=cols.shape)
        return out.astype(np.float32)[:, None]

    def make_pair(self, batch):
        rows = self.rng.integers(0, len(self.x), size=batch)
        return self.view(rows), self.view(rows)


class Ahead:
    """Keeps a few batches ready."""

    def __init__(self, source, batch, depth=4):
        self.source, self.batch, self.depth = source, batch, depth
        self.ready = collections.deque()
        self.closed = False
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self):
        while not self.closed:
            if len(self.ready) < self.depth:
                self.ready.append(self.source.make_pair(self.batch))

    def next(self):
        while not self.ready:
            time.sleep(0.001)
        a, b = self.ready.popleft()
        return torch.from_numpy(a), torch.from_numpy(b)


class Encoder(nn.Module):
    def __init__(self, width=32, out=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 7, 2, 3),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(2 * width, 2 * width, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.project = nn.Sequential(nn.Linear(8 * width, 128), nn.ReLU(), nn.Linear(128, out))

    def forward(self, x):
        return F.normalize(self.project(self.body(x)), dim=1)


def info_nce(z, temperature=0.2):
    n = z.shape[0] // 2
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, partner)


def train(steps=30_000, batch=48):
    torch.set_num_threads(1)
    torch.manual_seed(13)
    model = Encoder()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=True)
    feed = Ahead(Signals(), batch)
    begun = time.time()
    for step in range(1, steps + 1):
        a, b = feed.next()
        loss = info_nce(model(torch.cat([a, b])))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} nce {loss.item():.3f} ({time.time() - begun:.1f}s)", flush=True)
    feed.closed = True


if __name__ == "__main__":
    train()
