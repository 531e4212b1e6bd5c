"""Trains one model in several ways, one after the other, none of which steps an optimizer plainly.

After two steps of a way it prints `ready WAY` and trains on in it, until the file that is named
like the next way is there. It trains until the file `end` is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

import probing

torch.set_num_threads(1)
torch.manual_seed(0)
LR = 0.01
X, Y = torch.randn(6, 4), torch.randn(6, 2)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
weight = torch.randn(4, 2, requires_grad=True)
parameters = list(model.parameters())


def loss_of() -> Tensor:
    loss: Tensor = (model(X) - Y).pow(2).mean()
    return loss


def functional() -> Iterator[None]:
    own = {name: p.detach().clone() for name, p in model.named_parameters()}

    def compute(given: dict[str, Tensor]) -> Tensor:
        loss: Tensor = (functional_call(model, given, (X,)) - Y).pow(2).mean()
        return loss

    while True:
        found = grad(compute)(own)
        own = {name: p - LR * found[name] for name, p in own.items()}
        yield


def by_hand() -> Iterator[None]:
    while True:
        model.zero_grad()
        for _ in range(2):  # accumulated
            (loss_of() / 2).backward()
        with torch.no_grad():
            for p in parameters:
                assert p.grad is not None
                p.sub_(LR * p.grad)
        yield


def by_grad() -> Iterator[None]:
    model.zero_grad()
    while True:
        found = torch.autograd.grad(loss_of(), parameters)
        with torch.no_grad():
            for p, g in zip(parameters, found, strict=True):
                p.sub_(LR * g)
        yield


def forget(tensor: Tensor) -> None:
    tensor.grad = None


def without_modules() -> Iterator[None]:
    while True:
        forget(weight)
        (X @ weight - Y).pow(2).mean().backward()
        with torch.no_grad():
            weight.sub_(LR * torch.as_tensor(weight.grad))
        probing.step()
        yield


def closure() -> Iterator[None]:
    yield from stepping(torch.optim.SGD(parameters, lr=LR))


def lbfgs() -> Iterator[None]:
    yield from stepping(torch.optim.LBFGS(parameters, lr=LR, max_iter=3))


def stepping(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    def compute() -> float:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        time.sleep(0.02)  # most of a step: a command comes in the middle of one
        return float(loss)

    while True:
        optimizer.step(compute)
        yield


WAYS: tuple[Callable[[], Iterator[None]], ...] = (functional, by_hand, by_grad, closure, lbfgs)


def main() -> None:
    # What marks its steps comes last: from then on nothing else ends one.
    ways = (*WAYS, without_modules)
    for way, following in zip(ways, [*(way.__name__ for way in ways[1:]), "end"], strict=True):
        for number, _ in enumerate(way(), start=1):
            if number == 2:
                print("ready", way.__name__, flush=True)
            time.sleep(0.005)
            if Path(following).exists():
                break


main()
