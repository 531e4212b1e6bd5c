"""Tiny DDPM on 16x16 shapes; draws a grid of samples with the averaged weights now and then."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

T = 200
SAMPLE_EVERY, SAMPLES = 600, 32


def cosine_schedule():
    t = torch.linspace(0, 1, T + 1)
    bar = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    betas = (1 - bar[1:] / bar[:-1]).clamp(max=0.999)
    return betas, torch.cumprod(1 - betas, 0)


def shapes(batch, g):
    """Discs and squares of random place and size."""
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    c = 5 + 6 * torch.rand(batch, 2, 1, 1, generator=g)
    r = 2 + 3 * torch.rand(batch, 1, 1, generator=g)
    dx, dy = (xx - c[:, 0]).abs(), (yy - c[:, 1]).abs()
    disc = (dx**2 + dy**2).sqrt() < r
    square = torch.maximum(dx, dy) < r
    pick = torch.rand(batch, 1, 1, generator=g) < 0.5
    return torch.where(pick, disc, square).float().unsqueeze(1) * 2 - 1


class TimeBlock(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, padding=1)
        self.b = nn.Conv2d(cout, cout, 3, padding=1)
        self.t = nn.Linear(tdim, cout)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x, emb):
        h = F.silu(self.norm(self.a(x)) + self.t(emb)[:, :, None, None])
        return F.silu(self.b(h))


class SmallUNet(nn.Module):
    def __init__(self, w=16, tdim=64):
        super().__init__()
        self.tdim = tdim
        self.temb = nn.Sequential(nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.down1, self.down2 = TimeBlock(1, w, tdim), TimeBlock(w, 2 * w, tdim)
        self.mid = TimeBlock(2 * w, 2 * w, tdim)
        self.up = TimeBlock(3 * w, w, tdim)
        self.out = nn.Conv2d(w, 1, 3, padding=1)

    def forward(self, x, t):
        freq = torch.exp(-math.log(1e4) * torch.arange(self.tdim // 2) / (self.tdim // 2))
        ang = t[:, None].float() * freq[None]
        emb = self.temb(torch.cat([ang.sin(), ang.cos()], 1))
        h1 = self.down1(x, emb)
        h2 = self.mid(self.down2(F.avg_pool2d(h1, 2), emb), emb)
        h = torch.cat([h1, F.interpolate(h2, scale_factor=2.0)], 1)
        return self.out(self.up(h, emb))


@torch.no_grad()
def draw(model, betas, bars, n):
    """Ancestral sampling, all T steps."""
    x = torch.randn(n, 1, 16, 16)
    for t in reversed(range(T)):
        eps = model(x, torch.full((n,), t))
        x = (x - betas[t] / (1 - bars[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x.clamp(-1, 1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    g = torch.Generator().manual_seed(2)
    betas, bars = cosine_schedule()
    model = SmallUNet()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    avg = 0.0
    for step in range(1, 60_001):
        x0 = shapes(32, g)
        t = torch.randint(T, (len(x0),), generator=g)
        noise = torch.randn(x0.shape, generator=g)
        ab = bars[t][:, None, None, None]
        loss = F.mse_loss(model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        for e, p in zip(ema.parameters(), model.parameters()):
            e.lerp_(p, 1e-2)
        avg = loss.item() if step == 1 else 0.98 * avg + 0.02 * loss.item()
        if step % 50 == 0:
            print(f"step {step} mse {avg:.4f}", flush=True)
        if step % SAMPLE_EVERY == 0:
            grid = draw(ema, betas, bars, SAMPLES)
            print(
                f"  samples: ink {(grid > 0).float().mean().item():.3f} spread {grid.std().item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
