"""Grain price moves from order-book features; two ranks, gradients averaged by hand."""

import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class Market:
    """Synthetic order book. Now and then a minute of the own exchange is wild."""

    def __init__(self, rank, batch=64, lags=30, feats=16):
        self.gen = torch.Generator().manual_seed(900 + rank)
        self.batch, self.lags, self.feats = batch, lags, feats
        self.mix = torch.linspace(-1, 1, feats)
        self.rank = rank
        self.minute = 0

    def next(self):
        self.minute += 1
        x = torch.randn(self.batch, self.lags, self.feats, generator=self.gen)
        y = torch.tanh((x[:, -5:] @ self.mix).mean(1)) + 0.1 * torch.randn(
            self.batch, generator=self.gen
        )
        if torch.rand(1, generator=self.gen).item() < 0.02:
            y = y + 4 * torch.randn(self.batch, generator=self.gen)
        return x, y


class PriceNet(nn.Module):
    def __init__(self, feats=16, width=96):
        super().__init__()
        self.conv = nn.Conv1d(feats, width, 5)
        self.norm = nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, 1))

    def forward(self, x):
        h = torch.relu(self.conv(x.transpose(1, 2)))
        return self.ff(self.norm(h[..., -1] + h.mean(-1))).squeeze(1)


class SpikeGuard:
    """Leaves out updates whose loss is far above the usual."""

    def __init__(self, factor=3.0, warm=60):
        self.factor, self.warm = factor, warm
        self.usual = None
        self.count = 0
        self.skipped = 0

    def good(self, loss):
        self.count += 1
        if self.usual is None:
            self.usual = loss
        ok = self.count <= self.warm or loss < self.factor * self.usual
        if ok:
            self.usual = 0.95 * self.usual + 0.05 * loss
        else:
            self.skipped += 1
        return ok


def broadcast_start(model):
    for t in model.state_dict().values():
        dist.broadcast(t, src=0)


def mean_gradients(params, world):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in params]
    for h in handles:
        h.wait()
    for p in params:
        p.grad /= world


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = PriceNet()
    broadcast_start(model)
    params = list(model.parameters())
    opt = torch.optim.Adam(params, lr=1e-3)
    market, guard = Market(rank), SpikeGuard()
    t0 = time.time()
    for step in range(1, 80001):
        x, y = market.next()
        loss = (model(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        mean_gradients(params, world)
        if guard.good(loss.item()):
            opt.step()
        if rank == 0 and step % 100 == 0:
            print(
                f"step {step} {loss.item():.4f} skipped {guard.skipped} {step / (time.time() - t0):.1f}/s",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
