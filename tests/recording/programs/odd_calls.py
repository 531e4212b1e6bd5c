"""Calls modules in every way that one can, asserting results, and prints `done` at the end."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class Leaf(nn.Module):
    def forward(self, x: torch.Tensor, *, add: float = 0.0, fail: bool = False) -> torch.Tensor:
        if fail:
            raise ValueError("asked for")
        return x + add


class Nest(nn.Module):
    """Calls itself to a depth, and a leaf at its bottom."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()
        self.depth = 3

    def forward(self, x: torch.Tensor, left: int | None = None) -> torch.Tensor:
        left = self.depth if left is None else left
        return self(x, left - 1) if left else self.leaf(x, add=1.0)


class OwnCall(nn.Module):
    """Has a `__call__` of its own, around torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leaf(x)


class OwnAttributes(nn.Module):
    """Looks its attributes up by itself."""

    def __getattr__(self, name: str) -> Any:
        return 7 if name == "seven" else super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.seven


class Streams(nn.Module):
    """Calls modules from a generator and from a coroutine."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def pieces(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for number in range(3):
            yield self.leaf(x, add=float(number))

    async def later(self, x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return self.leaf(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = sum(self.pieces(x))
        return total + asyncio.run(self.later(x))


class Lazy(nn.Module):
    """Its forward is a generator: it is run once the call is over."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for number in range(3):
            yield self.leaf(x, add=float(number))


class Later(nn.Module):
    """Its forward is a coroutine: several are run in turn, once their calls are over."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    async def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.leaf(x, add=1.0)
            await asyncio.sleep(0)
        return x


class Waits(nn.Module):
    """Has both of them run: in each other's midst, and one that is never run to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.lazy, self.later = Lazy(), Later()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        next(self.lazy(x))
        for piece, _ in zip(self.lazy(x), self.lazy(x), strict=True):
            x = x + piece

        async def both() -> list[torch.Tensor]:
            return await asyncio.gather(self.later(x), self.later(x))

        return sum(asyncio.run(both()), start=x)


class Catches(nn.Module):
    """Its leaf fails below twenty levels, and it goes on."""

    def __init__(self) -> None:
        super().__init__()
        inner: nn.Module = Leaf()
        for _ in range(20):
            inner = Passes(inner)
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for kind in (ValueError, KeyboardInterrupt, SystemExit, StopIteration):
            try:
                self.inner(x, kind)
            except kind as error:
                x = x + error.args.count("asked for")
        return x


class Passes(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, kind: type[BaseException]) -> torch.Tensor:
        if isinstance(self.inner, Leaf):
            self.inner(x)
            raise kind("asked for")
        return self.inner(x, kind)


class Makes(nn.Module):
    """Makes modules that die, so that others get their addresses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(50):
            module = nn.Identity() if number % 2 else nn.Softsign()
            x = module(x)
            del module
        gc.collect()
        return x


class Swaps(nn.Module):
    """Its own call is replaced while it runs, by somebody who profiles it."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        original = self.leaf._call_impl
        self.leaf._call_impl = lambda *args, **kwargs: original(*args, **kwargs) + 1
        try:
            return self.leaf(x, add=1.0)
        finally:
            del self.leaf._call_impl


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.leaf, self.other = Leaf(), Leaf()
        self.leaf.register_forward_hook(lambda _, args, result: self.other(result, add=2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leaf(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.nest, self.own, self.attributes = Nest(), OwnCall(), OwnAttributes()
        self.streams, self.catches, self.makes = Streams(), Catches(), Makes()
        self.swaps, self.hooked, self.waits = Swaps(), Hooked(), Waits()
        self.deep = Nest()
        self.deep.depth = 300

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        for module in (
            self.nest,
            self.own,
            self.attributes,
            self.streams,
            self.catches,
            self.makes,
            self.swaps,
            self.hooked,
            self.waits,
            self.deep,
        ):
            x = module(x)
        return x


def in_thread(model: Model, x: torch.Tensor) -> torch.Tensor:
    """One more call, in another thread."""
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(model(x).detach()))
    thread.start()
    thread.join()
    return found[0]


sys.setrecursionlimit(5000)
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
example = torch.randn(2, 4)
for _ in range(4):
    result = model(example)
    assert torch.equal(in_thread(model, example), result.detach())
    optimizer.zero_grad()
    result.sum().backward()
    optimizer.step()
print(f"result {result.sum().item():.9f}", flush=True)
print("done", flush=True)
time.sleep(600)
