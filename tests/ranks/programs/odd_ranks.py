"""Ranks of a data parallel training, some of which are not like the others.

Each argument says what is odd and on which rank: `slow:1` sleeps 200 ms in a hook of each backward
pass, `changed:3` has another number in one parameter, `masked:0` in a buffer, `option:2` in an
option of its optimizer, and `drawn:1` has drawn a random number more. A rank whose `IS_ASLEEP` is
set, as `eval` can do, stays away from the next all_reduce until it is unset. `ready` is printed
after three steps.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import distributed as dist, nn
from torch.nn.parallel import DistributedDataParallel

SLOW_S = 0.2
IS_ASLEEP = False


def fall_asleep() -> None:
    """Stay away from what the others do."""
    while IS_ASLEEP:
        time.sleep(0.05)


def slow_down(gradient: Any) -> Any:
    """Take long over a gradient."""
    time.sleep(SLOW_S)
    return gradient


class Model(nn.Module):
    """Three layers, the same on all ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 64)
        self.last = nn.Linear(64, 8)
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.ones(8))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """All layers, in order."""
        found: torch.Tensor = self.last(self.second(self.first(data).relu()))
        return found


def train(odd: list[str]) -> None:
    """Train for ever."""
    inner = Model()
    model = DistributedDataParallel(inner, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if "masked" in odd:
        inner.mask[3] = 0
    if "option" in odd:
        optimizer.param_groups[0]["foreach"] = False
    if "drawn" in odd:
        torch.rand(1)
    if "slow" in odd:
        inner.last.weight.register_hook(slow_down)
    if "changed" in odd:
        with torch.no_grad():
            inner.second.weight[1, 2] += 0.5
    step = 0
    while True:
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        if IS_ASLEEP:
            fall_asleep()
        dist.all_reduce(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == 3:
            print("ready", flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    pairs = [word.split(":") for word in sys.argv[1:]]
    train([what for what, rank in pairs if int(rank) == dist.get_rank()])
