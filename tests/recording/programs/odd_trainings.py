"""Trains in a way that few do, with an agent, and prints what that has come to, as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn

import probing
from probing.agent import lifecycle
from probing.settings import Settings

STEPS = 8


def no_numbers() -> None:
    """A process group whose backend does not count its collectives."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    plain(lambda: distributed.all_reduce(torch.ones(2)))


def plain(then: Callable[[], object] = lambda: None, *, steps: int = STEPS) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        then()


def in_backward() -> None:
    """The step of each parameter's optimizer is in the backward pass."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], 0.01)

        def step(_: Tensor, own: torch.optim.Optimizer = optimizer) -> None:
            own.step()
            own.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(120):
        model(torch.ones(3, 4)).sum().backward()


class Scaled(torch.autograd.Function):
    """Keeps a text where nodes of leaves have their tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.variable = "scale"
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


def named_variable() -> None:
    """Descends by hand."""
    weight = torch.ones(3, requires_grad=True)
    for _ in range(STEPS):
        Scaled.apply(weight).sum().backward()
        with torch.no_grad():
            assert weight.grad is not None
            weight -= 0.01 * weight.grad
        weight.grad = None


def lazy() -> None:
    """A head that is never called."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.tags = nn.Embedding(9, 4), nn.Linear(4, 2)
            self.spare = nn.LazyLinear(3)

        def forward(self, ids: Tensor) -> Tensor:
            tags: Tensor = self.tags(self.words(ids))
            return tags

    model = Tagger()
    optimizer = torch.optim.SGD([*model.words.parameters(), *model.tags.parameters()], 0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(4, 8, dtype=torch.long)).sum().backward()
        optimizer.step()


def left_and_met() -> None:
    """The agent comes and goes while gradients are averaged from C++."""
    store: Any = distributed
    distributed.init_process_group("gloo", store=store.HashStore(), rank=0, world_size=1)
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(30)))
    model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    is_over = threading.Event()

    def come_and_go() -> None:
        for _ in range(12):
            probing.stop()
            probing.start()
            is_over.wait(0.02)
        is_over.set()

    threading.Thread(target=come_and_go, daemon=True).start()
    while not is_over.is_set():
        optimizer.zero_grad()
        model(torch.ones(3, 64)).sum().backward()
        optimizer.step()


def main(way: str) -> None:
    """Train so."""
    agent = lifecycle.start(Settings.from_env(os.environ))
    globals()[way]()
    if way == "left_and_met":
        print(json.dumps("went on"))
        return
    training: Any = agent.training
    costs = training._recording.costs.step_ns
    told = {"problems": training.problems(), "step": training.step(), "costs": costs}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
