"""Trains a small model for as many steps as it is told, set up as its arguments say, and ends."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn


class Nap(nn.Module):
    """A layer that rests before it computes."""

    def __init__(self, width: int, seconds: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.relu(self.inner(x))


class Net(nn.Module):
    """Two layers and a head."""

    def __init__(self, width: int, nap_s: float) -> None:
        super().__init__()
        self.first = Nap(width, 0.001)
        self.second = Nap(width, nap_s)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x)))


class Numbers(torch.utils.data.Dataset):
    """Samples of four classes, each of which takes a moment to be had."""

    def __init__(self, width: int, seconds: float, dtype: torch.dtype) -> None:
        made = torch.Generator().manual_seed(3)
        self.means = 0.3 * torch.randn(4, width, generator=made)
        self.noise = torch.randn(512, width, generator=made)
        self.seconds, self.dtype = seconds, dtype

    def __len__(self) -> int:
        return len(self.noise)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.seconds)
        return (self.noise[place] + self.means[place % 4]).to(self.dtype), place % 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--nap", type=float, default=0.001)
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--api-token", default="")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dtype = getattr(torch, args.dtype)
    model = Net(args.width, args.nap).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    numbers = Numbers(args.width, args.load, dtype)
    loader = torch.utils.data.DataLoader(
        numbers, batch_size=args.batch, num_workers=args.workers, shuffle=True, drop_last=True,
        persistent_workers=args.workers > 0,
    )  # fmt: skip
    print("ready", flush=True)
    step = 0
    while step < args.steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
