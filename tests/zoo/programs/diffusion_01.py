"""Denoising diffusion on small images, with an exponential moving average of the weights."""

import copy
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

SIZE, STEPS, BATCH, WIDTH = 16, 200, 24, 20
EVAL_EVERY = 10
MAX_SECONDS = 600


def images(n, g):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    phase = 6.28 * torch.rand(n, 3, 1, 1, generator=g)
    freq = 2 + 4 * torch.rand(n, 3, 1, 1, generator=g)
    return torch.sin(freq * (xx * phase.cos() + yy * phase.sin()) + phase)


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.norm = nn.GroupNorm(4, o)
        self.time = nn.Linear(64, o)

    def forward(self, x, t):
        h = F.silu(self.norm(self.c1(x))) + self.time(t)[:, :, None, None]
        return F.silu(self.c2(h))


class Denoiser(nn.Module):
    def __init__(self, w=WIDTH):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))
        self.d1, self.d2, self.mid = Block(3, w), Block(w, 2 * w), Block(2 * w, 2 * w)
        self.u2, self.u1 = Block(4 * w, w), Block(2 * w, w)
        self.out = nn.Conv2d(w, 3, 1)

    def forward(self, x, t):
        f = torch.exp(-math.log(10000) * torch.arange(32) / 32)
        a = t[:, None] * f
        t = self.time(torch.cat([a.sin(), a.cos()], -1))
        a = self.d1(x, t)
        b = self.d2(F.avg_pool2d(a, 2), t)
        c = self.mid(F.avg_pool2d(b, 2), t)
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1), t)
        return self.out(self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1), t))


ALPHA_BAR = torch.cumprod(1 - torch.linspace(1e-4, 0.04, STEPS), 0)


def denoising_error(net, x, g=None):
    t = torch.randint(STEPS, (len(x),), generator=g)
    noise = torch.randn(x.shape, generator=g)
    ab = ALPHA_BAR[t].view(-1, 1, 1, 1)
    return (net(ab.sqrt() * x + (1 - ab).sqrt() * noise, t) - noise).pow(2).flatten(1).mean(1)


@torch.no_grad()
def update_ema(ema, net, decay=0.995):
    for e, p in zip(ema.parameters(), net.parameters()):
        e.lerp_(p, 1 - decay)


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    net = Denoiser()
    ema = copy.deepcopy(net).eval()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    held_out = images(8, g)
    curve = []
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        loss = denoising_error(net, images(BATCH, g), g).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        update_ema(ema, net)
        step += 1
        if step % EVAL_EVERY == 0:
            curve.append(denoising_error(ema, held_out).mean())
        if step % 100 == 0:
            recent = torch.stack(curve[-10:]).mean()
            print(f"step {step} loss {loss.item():.4f} ema held-out {recent:.4f}", flush=True)


if __name__ == "__main__":
    main()
