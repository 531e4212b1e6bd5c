"""Runs out of memory in the way that its argument names: truly, under a limit on its address space.

Prints its losses as JSON, and `ready` before it waits to be ended; some ways end it earlier.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

ROOM = 64 << 20
HUGE = 1 << 46
"""No address space has as much: asking for it fails without a limit."""
LENGTH = 128
losses: list[float] = []


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.down = nn.Linear(3 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.qkv(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 64)
        self.blocks = nn.ModuleList(Block(64) for _ in range(3))
        self.head = nn.Linear(64, 50)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.tokens(codes)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@contextmanager
def limit(room: int) -> Iterator[None]:
    """Little more address space than there is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


torch.manual_seed(0)
torch.set_num_threads(1)
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)


def loss_of(samples: int) -> Tensor:
    codes = torch.arange(samples * LENGTH).reshape(samples, LENGTH) % 50
    return cross_entropy(model(codes).flatten(0, 1), codes.flatten())


def train(samples: int = 4) -> None:
    loss = loss_of(samples)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())


def forward() -> None:
    with limit(ROOM):
        train(4096)


def backward() -> None:
    loss = loss_of(1024)
    with limit(ROOM):
        loss.backward()


def recovered() -> None:
    """Three errors in a row, each raised in the same place of the same loop."""
    for _ in range(3):
        try:
            forward()
        except RuntimeError:
            optimizer.zero_grad()
    train()


def caught_backward() -> None:
    try:
        backward()
    except RuntimeError:
        optimizer.zero_grad()
    train()


def loss() -> None:
    codes = torch.zeros(4, LENGTH, dtype=torch.long)
    scores = model(codes)
    scores.new_empty(HUGE)


def first_step() -> None:
    wide = nn.Linear(6000, 6000, bias=False)
    stepper = torch.optim.AdamW(wide.parameters())
    wide(torch.ones(1, 6000)).sum().backward()
    with limit(ROOM):
        stepper.step()


def caught_step() -> None:
    try:
        first_step()
    except RuntimeError:
        train()


def eat() -> None:
    """Take memory until the kernel ends this."""
    kept = []
    while True:
        kept.append(torch.ones(4 << 20))
        train()


def read() -> None:
    """Have the kernel cache files, more than once what is read last, and train meanwhile."""
    chunk = 32 << 20
    with Path("read").open("w+b") as file:
        file.truncate(32 * chunk)
        for number in (*range(32), *range(28, 32), *range(28, 32)):
            file.seek(number * chunk)
            file.read(chunk)
            train()


def script() -> None:
    bytearray(HUGE)


def second_epoch() -> None:
    loader: Any = DataLoader(range(8), batch_size=2)  # type: ignore[arg-type]
    for epoch in range(2):
        for number, _ in enumerate(loader):
            if (epoch, number) == (1, 2):
                bytearray(HUGE)


def other_errors() -> None:
    """None of them is an out-of-memory error."""
    for given in (torch.zeros(2, LENGTH, dtype=torch.float), torch.full((2, LENGTH), 99)):
        try:
            model(given)
        except (RuntimeError, IndexError):
            train()


def told_by_a_device() -> None:
    """What a CUDA device's error looks like: raised in a module as torch raises it."""

    class Full(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of"
                " 79.11 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process"
                " has 77.85 GiB memory in use. Of the allocated memory 50.00 GiB is allocated by"
                " PyTorch, and 27.00 GiB is reserved by PyTorch but unallocated."
            )

    try:
        nn.Sequential(nn.Linear(4, 4), Full())(torch.ones(8, 4))
    except torch.OutOfMemoryError:
        train()


WAYS: dict[str, Callable[[], Any]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == "__main__"
}

if __name__ == "__main__":
    for _ in range(3):
        train()
    try:
        for way in sys.argv[1:]:
            WAYS[way]()
    finally:
        print(json.dumps(losses), flush=True)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
