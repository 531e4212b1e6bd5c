"""Nightly refit on a shared machine."""

import argparse
import time

import torch
from torch import nn


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--duty", type=float, default=0.5, help="share of the time that may be used"
    )
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=512)
    return parser.parse_args()


class Factorization(nn.Module):
    def __init__(self, features=40, rank=16):
        super().__init__()
        self.linear = nn.Linear(features, 1)
        self.factors = nn.Parameter(torch.randn(features, rank) * 0.05)
        self.deep = nn.Sequential(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, rows):
        mixed = (rows @ self.factors).pow(2) - rows.pow(2) @ self.factors.pow(2)
        return (self.linear(rows) + self.deep(rows)).squeeze(1) + 0.5 * mixed.sum(1)


class Throttle:
    """Rests after each step, so that the share of busy time stays below the duty."""

    def __init__(self, duty):
        self.duty = duty
        self.began = time.perf_counter()

    def rest(self):
        busy = time.perf_counter() - self.began
        time.sleep(busy * (1 - self.duty) / self.duty)
        self.began = time.perf_counter()


def main():
    args = parse_args()
    torch.manual_seed(86)
    truth = torch.randn(40)
    model = Factorization()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    throttle = Throttle(args.duty)
    for step in range(1_000_000):
        rows = torch.randn(args.batch_size, 40)
        targets = rows @ truth + rows[:, 0] * rows[:, 1]
        loss = nn.functional.mse_loss(model(rows), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        throttle.rest()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
