"""Trains past the wrapper of its model, and hangs one more hook on a layer in each step."""

from __future__ import annotations

import functools
import time

import torch
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)


def keep(*_: object) -> None:
    """Does nothing."""


def once(name: str, *_: object) -> None:
    """Does nothing, for a name."""


def passing(*_: object) -> None:
    """Does nothing, for one step."""


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
called = nn.Linear(4, 4)
passed_by = nn.parallel.DistributedDataParallel(net)
averaged = nn.parallel.DistributedDataParallel(called)
dropped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4, bias=False)).module
optimizer = torch.optim.SGD([*net.parameters(), *called.parameters(), *dropped.parameters()], 1e-3)
for name in ("first", "second"):
    net[0].register_forward_hook(functools.partial(once, name))
print("ready", flush=True)
while True:
    net[2].register_forward_hook(keep)
    handle = net[0].register_forward_hook(passing)
    with averaged.no_sync():
        passed_by.module(dropped(averaged(torch.randn(8, 4)))).square().mean().backward()
    handle.remove()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
