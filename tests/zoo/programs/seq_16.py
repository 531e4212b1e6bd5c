"""Tide gauge forecasting with a small transformer, one process per station group."""

import contextlib
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    window: int = 48
    horizon: int = 12
    channels: int = 4
    d_model: int = 64
    layers: int = 2
    batch: int = 24
    accum: int = 4
    lr: float = 6e-4
    clip: float = 1.0
    updates: int = 6000
    seed: int = 31


class Forecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(cfg.channels, cfg.d_model)
        self.pos = nn.Parameter(torch.randn(1, cfg.window, cfg.d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(
            cfg.d_model,
            nhead=4,
            dim_feedforward=2 * cfg.d_model,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.d_model)
        self.out = nn.Linear(cfg.d_model, cfg.horizon)

    def forward(self, x):
        h = self.encoder(self.embed(x) + self.pos)
        return self.out(self.norm(h[:, -1]))


def gauge_windows(cfg, rank):
    """Endless (history, future) pairs; every rank draws its own stations."""
    g = torch.Generator().manual_seed(cfg.seed * 100 + rank)
    span = cfg.window + cfg.horizon
    t = torch.arange(span, dtype=torch.float32)
    periods = torch.tensor([12.42, 12.0, 25.8, 23.9])
    while True:
        phase = torch.rand(cfg.batch, 1, 4, generator=g) * 2 * math.pi
        amp = 0.3 + torch.rand(cfg.batch, 1, 4, generator=g)
        waves = amp * torch.sin(2 * math.pi * t[None, :, None] / periods + phase)
        level = waves.sum(-1)
        wind = torch.randn(cfg.batch, span, generator=g).cumsum(1) * 0.03
        level = level + wind + 0.05 * torch.randn(cfg.batch, span, generator=g)
        hours = t[None].expand(cfg.batch, -1)
        x = torch.stack(
            [level, wind, torch.sin(hours * 2 * math.pi / 24), torch.cos(hours * 2 * math.pi / 24)],
            dim=-1,
        )
        yield x[:, : cfg.window], level[:, cfg.window :]


def run_rank(cfg):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(cfg.seed)

    ddp = DDP(Forecaster(cfg))
    opt = torch.optim.AdamW(ddp.parameters(), lr=cfg.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))

    update, running = 0, 0.0
    for micro, (x, y) in enumerate(gauge_windows(cfg, rank)):
        reduce_now = micro % cfg.accum == 0
        with contextlib.nullcontext() if reduce_now else ddp.no_sync():
            loss = F.smooth_l1_loss(ddp(x), y)
            (loss / cfg.accum).backward()
        running += loss.item()

        if (micro + 1) % cfg.accum == 0:
            nn.utils.clip_grad_norm_(ddp.parameters(), cfg.clip)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            update += 1
            if update % 10 == 0:
                if rank == 0:
                    print(
                        f"step {update} loss {running / (10 * cfg.accum):.4f} "
                        f"lr {sched.get_last_lr()[0]:.2e}",
                        flush=True,
                    )
                running = 0.0
            if update >= cfg.updates:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(Config())
