"""Metric learning: products photographed from several angles, triplets with a soft margin."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    classes: int = 12
    per_class: int = 10000
    features: int = 128
    width: int = 512
    dim: int = 48
    batch: int = 48
    margin: float = 0.6
    lr: float = 5e-4
    seed: int = 21


class Catalogue:
    def __init__(self, cfg):
        g = torch.Generator().manual_seed(cfg.seed)
        centres = torch.randn(cfg.classes, cfg.features, generator=g)
        noise = torch.randn(cfg.classes, cfg.per_class, cfg.features, generator=g)
        self.x = centres[:, None] * 0.5 + noise
        self.cfg, self.g = cfg, g

    def triplets(self):
        c, n = self.cfg, self.cfg.batch
        cls = torch.randint(c.classes, (n,), generator=self.g)
        other = (cls + torch.randint(1, c.classes, (n,), generator=self.g)) % c.classes
        a = torch.randint(c.per_class, (n,), generator=self.g)
        p = torch.randint(c.per_class, (n,), generator=self.g)
        q = torch.randint(c.per_class, (n,), generator=self.g)
        return self.x[cls, a], self.x[cls, p], self.x[other, q]


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(cfg.features, cfg.width),
            nn.LayerNorm(cfg.width),
            nn.GELU(),
            nn.Linear(cfg.width, cfg.width),
            nn.LayerNorm(cfg.width),
            nn.GELU(),
        )
        self.project = nn.Linear(cfg.width, cfg.dim)

    def forward(self, x):
        z = self.project(self.layers(x))
        return nn.functional.normalize(z, dim=-1)


def distance(a, b):
    return (a - b).pow(2).sum(-1).sqrt()


class TripletTrainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.data = Catalogue(cfg)
        self.encoder = Encoder(cfg)
        self.opt = torch.optim.AdamW(self.encoder.parameters(), lr=cfg.lr, weight_decay=0.01)
        self.step = 0

    def loss(self, anchor, positive, negative):
        z = self.encoder(torch.cat([anchor, positive, negative]))
        a, p, n = z.chunk(3)
        near, far = distance(a, p), distance(a, n)
        return nn.functional.softplus(8 * (near - far + self.cfg.margin)).mean() / 8, near, far

    def train_step(self):
        self.step += 1
        loss, near, far = self.loss(*self.data.triplets())
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.item(), near.mean().item(), far.mean().item()

    def fit(self):
        while True:
            loss, near, far = self.train_step()
            if self.step % 25 == 0:
                print(f"step {self.step} loss {loss:.4f} near {near:.3f} far {far:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    TripletTrainer(Config()).fit()
