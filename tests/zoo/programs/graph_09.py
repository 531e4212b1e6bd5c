"""Equivariant message passing on small point clouds, dense adjacency."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
ATOMS, KINDS, RBF = 12, 5, 16


def pair_distance(pos):
    diff = pos[:, :, None] - pos[:, None]
    return diff, diff.pow(2).sum(-1).sqrt()


class Interaction(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.edge = nn.Sequential(
            nn.Linear(2 * dim + RBF, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU()
        )
        self.gate = nn.Linear(dim, 1)
        self.node = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.register_buffer("centers", torch.linspace(0, 4, RBF))

    def forward(self, h, pos, mask):
        n = h.shape[1]
        diff, d = pair_distance(pos)
        rbf = torch.exp(-4 * (d[..., None] - self.centers) ** 2)
        pair = torch.cat(
            [h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), rbf], -1
        )
        m = self.edge(pair) * mask[..., None]
        pos = pos + 0.1 * (diff * torch.tanh(self.gate(m))).mean(2)
        return h + self.node(torch.cat([h, m.sum(2)], -1)), pos


class EnergyModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.kind = nn.Embedding(KINDS, dim)
        self.layers = nn.ModuleList([Interaction(dim) for _ in range(2)])
        self.out = nn.Linear(dim, 1)

    def forward(self, kinds, pos):
        h = self.kind(kinds)
        mask = 1 - torch.eye(pos.shape[1])
        mask = mask.expand(pos.shape[0], -1, -1)
        for layer in self.layers:
            h, pos = layer(h, pos, mask)
        return self.out(h).sum(1).squeeze(-1)


def sample(gen, charges, n=40):
    kinds = torch.randint(0, KINDS, (n, ATOMS), generator=gen)
    pos = 1.2 * torch.randn(n, ATOMS, 3, generator=gen)
    q = charges[kinds]
    gap = torch.cdist(pos, pos) + torch.eye(ATOMS)
    energy = (q[:, :, None] * q[:, None] / (0.5 + gap)).triu(1).sum((1, 2))
    return kinds, pos, energy


class Fit:
    def __init__(self):
        torch.manual_seed(4)
        self.model = EnergyModel()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.gen = torch.Generator().manual_seed(21)
        self.charges = torch.linspace(-0.8, 0.8, KINDS)
        self.rejected = 0

    def update(self):
        kinds, pos, energy = sample(self.gen, self.charges)
        loss = F.l1_loss(self.model(kinds, pos), energy)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        if torch.isfinite(norm):
            self.opt.step()
        else:
            self.rejected += 1
        return loss.item()


def main():
    fit, t0, smooth, i = Fit(), time.time(), None, 0
    while True:
        loss = fit.update()
        i += 1
        smooth = loss if smooth is None else 0.97 * smooth + 0.03 * loss
        if i % 30 == 0:
            print(f"[{time.time() - t0:.1f}] step {i} energy_mae={smooth:.4f}", flush=True)


if __name__ == "__main__":
    main()
