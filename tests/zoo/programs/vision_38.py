"""SimCLR on small textures, batches are prepared one ahead by a helper thread."""

import collections
import math
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, SIZE, TAU = 64, 24, 0.2


class Textures:
    def __init__(self, n=2048, seed=0):
        g = torch.Generator().manual_seed(seed)
        ang = torch.rand(n, generator=g) * math.pi
        freq = 0.3 + 1.2 * torch.rand(n, generator=g)
        r = torch.arange(SIZE).float()
        phase = freq[:, None, None] * (
            torch.cos(ang)[:, None, None] * r[None, :, None]
            + torch.sin(ang)[:, None, None] * r[None, None, :]
        )
        tint = torch.rand(n, 3, 1, 1, generator=g)
        self.images = (torch.sin(phase)[:, None] * tint).contiguous()

    def __len__(self):
        return len(self.images)


def augment(x):
    s = int(torch.randint(0, 5, ()))
    x = x.roll((s, -s), (-2, -1))
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    return x * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.15 * torch.randn_like(x)


class Prefetcher(threading.Thread):
    def __init__(self, data, depth=3):
        super().__init__(name="prefetcher", daemon=True)
        self.data, self.depth = data, depth
        self.ready = collections.deque()
        self.order = iter(())

    def _next_indices(self):
        try:
            return next(self.order)
        except StopIteration:
            self.order = iter(torch.randperm(len(self.data)).split(BATCH)[:-1])
            return next(self.order)

    def run(self):
        while True:
            if len(self.ready) >= self.depth:
                continue
            x = self.data.images[self._next_indices()]
            self.ready.append((augment(x), augment(x)))

    def get(self):
        while not self.ready:
            time.sleep(0.001)
        return self.ready.popleft()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(24, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 96, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.proj = nn.Sequential(nn.Linear(384, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)


def nt_xent(a, b):
    z = torch.cat([a, b])
    sim = z @ z.t() / TAU
    sim.fill_diagonal_(-1e4)
    n = len(a)
    target = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(sim, target)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    feed = Prefetcher(Textures())
    feed.start()
    net = Encoder()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    step, t0 = 0, time.time()
    while True:
        a, b = feed.get()
        za, zb = net(torch.cat([a, b])).chunk(2)
        loss = nt_xent(za, zb)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        step += 1
        if step % 25 == 0:
            print(
                f"step {step} loss {loss.item():.4f} {25 / (time.time() - t0):.1f} it/s", flush=True
            )
            t0 = time.time()


if __name__ == "__main__":
    main()
