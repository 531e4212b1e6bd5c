"""Tiny pixel diffusion model with periodic preview grids."""

import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIDE, STEPS = 8, 100


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Denoiser(nn.Module):
    def __init__(self, width=448):
        super().__init__()
        self.inp = nn.Linear(SIDE * SIDE + 32, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, SIDE * SIDE)
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(200), 16)))

    def forward(self, x, t):
        angle = (t.float() / STEPS)[:, None] * self.freq
        h = F.silu(self.inp(torch.cat([x, angle.sin(), angle.cos()], 1)))
        for layer in self.mid:
            h = h + F.silu(layer(h))
        return self.out(h)


class Diffusion:
    def __init__(self):
        beta = torch.linspace(1e-3, 0.08, STEPS)
        self.beta = beta
        self.abar = torch.cumprod(1 - beta, 0)

    def noised(self, x, t, eps):
        a = self.abar[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * eps

    @torch.no_grad()
    def sample(self, net, n):
        x = torch.randn(n, SIDE * SIDE)
        for k in reversed(range(STEPS)):
            t = torch.full((n,), k)
            eps = net(x, t)
            x = (x - self.beta[k] / (1 - self.abar[k]).sqrt() * eps) / (1 - self.beta[k]).sqrt()
            if k:
                x = x + self.beta[k].sqrt() * torch.randn_like(x)
        return x


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    c = torch.rand(n, 2, 1, 1, generator=g) * 6 + 1
    s = torch.rand(n, 1, 1, generator=g) * 1.5 + 0.7
    yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    img = torch.exp(-((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2) / (2 * s**2))
    return (img * 2 - 1).flatten(1)


class Studio:
    def __init__(self):
        seed_all(0)
        self.images = blobs(6000, 1)
        self.held = blobs(256, 2)
        self.net = Denoiser()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.proc = Diffusion()

    def step(self, batch=112):
        x = self.images[torch.randint(0, len(self.images), (batch,))]
        t = torch.randint(0, STEPS, (batch,))
        eps = torch.randn_like(x)
        loss = F.mse_loss(self.net(self.proc.noised(x, t, eps), t), eps)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def preview(self):
        seed_all(1234)
        grid = self.proc.sample(self.net, 9)
        return grid.std().item()

    @torch.no_grad()
    def held_out(self):
        g = torch.Generator().manual_seed(3)
        t = torch.randint(0, STEPS, (len(self.held),), generator=g)
        eps = torch.randn(self.held.shape, generator=g)
        return F.mse_loss(self.net(self.proc.noised(self.held, t, eps), t), eps).item()


def main():
    s, t0, n = Studio(), time.time(), 0
    while True:
        loss = s.step()
        n += 1
        if n % 20 == 0:
            spread = s.preview()
            print(
                f"{time.time() - t0:6.1f}s step {n} loss {loss:.4f} held {s.held_out():.4f} "
                f"preview std {spread:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
