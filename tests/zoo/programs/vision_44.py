import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Settings:
    size: int = 12
    pool: int = 6000
    batch: int = 32
    width: int = 32
    timesteps: int = 200
    preview_every: int = 20
    seed: int = 1234


def petals(n, size, gen):
    """Soft flowers: a radial pattern with a random number of petals, position and tilt."""
    axis = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    cx = (torch.rand(n, 1, 1, generator=gen) - 0.5) * 0.8
    cy = (torch.rand(n, 1, 1, generator=gen) - 0.5) * 0.8
    count = torch.randint(2, 7, (n, 1, 1), generator=gen).float()
    tilt = torch.rand(n, 1, 1, generator=gen) * 2 * math.pi
    r = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
    a = torch.atan2(yy - cy, xx - cx)
    img = torch.exp(-((r - 0.45 - 0.2 * torch.cos(count * a + tilt)) ** 2) / 0.03)
    return (img * 2 - 1).unsqueeze(1)


def time_features(t, dim):
    half = dim // 2
    freq = torch.exp(-math.log(1000.0) * torch.arange(half) / half)
    arg = t[:, None].float() * freq[None]
    return torch.cat([arg.sin(), arg.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, ch, tdim):
        super().__init__()
        self.norm = nn.GroupNorm(4, ch)
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.shift = nn.Linear(tdim, ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm(x)))
        h = h + self.shift(temb)[:, :, None, None]
        return x + self.conv2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, ch, tdim=64):
        super().__init__()
        self.tdim = tdim
        self.tmlp = nn.Sequential(nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.blocks = nn.ModuleList(Block(ch, tdim) for _ in range(3))
        self.head = nn.Sequential(nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))

    def forward(self, x, t):
        temb = self.tmlp(time_features(t, self.tdim))
        h = self.stem(x)
        for block in self.blocks:
            h = block(h, temb)
        return self.head(h)


class Diffusion:
    def __init__(self, cfg):
        self.cfg = cfg
        betas = torch.linspace(1e-4, 0.03, cfg.timesteps)
        self.abar = torch.cumprod(1 - betas, dim=0)

    def loss(self, net, x0):
        t = torch.randint(self.cfg.timesteps, (len(x0),))
        noise = torch.randn_like(x0)
        a = self.abar[t][:, None, None, None]
        return F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)

    @torch.no_grad()
    def preview(self, net, n=8, hops=10):
        """A few samples from the same latents each time, so that previews are comparable."""
        torch.manual_seed(self.cfg.seed)
        x = torch.randn(n, 1, self.cfg.size, self.cfg.size)
        grid = torch.linspace(self.cfg.timesteps - 1, 0, hops).long()
        for i, t in enumerate(grid):
            a = self.abar[t]
            eps = net(x, t.expand(n))
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
            nxt = self.abar[grid[i + 1]] if i + 1 < hops else torch.tensor(1.0)
            x = nxt.sqrt() * x0 + (1 - nxt).sqrt() * eps
        return x


def main(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    images = petals(cfg.pool, cfg.size, torch.Generator().manual_seed(cfg.seed))
    net, diffusion = Denoiser(cfg.width), Diffusion(cfg)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    avg = None
    for step in range(1, 1_000_000):
        batch = images[torch.randint(cfg.pool, (cfg.batch,))]
        loss = diffusion.loss(net, batch)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
        if step % cfg.preview_every == 0:
            sample = diffusion.preview(net)
            print(f"step {step} loss {avg:.4f} sample std {sample.std():.3f}", flush=True)


if __name__ == "__main__":
    main(Settings())
