"""Prints each weak reference to a parameter or a gradient that it finds between its own lines.

It steps by hand, then by two optimizers of one model, with clipping, several passes per step and
passes that no step follows; `round N` is printed as one of these is through.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from itertools import count

import torch

MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


def look(moment: str) -> None:
    for name, parameter in MODEL.named_parameters():
        for what, tensor in (("weight", parameter), ("gradient", parameter.grad)):
            if tensor is not None and weakref.getweakrefs(tensor):
                print("found", what, name, moment, flush=True)


def trained(x: torch.Tensor, moment: str) -> None:
    MODEL(x).square().mean().backward()
    look(moment)


def by_hand() -> None:
    trained(torch.ones(2, 4), "after a pass by hand")
    with torch.no_grad():
        for parameter in MODEL.parameters():
            parameter.sub_(parameter if parameter.grad is None else parameter.grad, alpha=0.01)
            parameter.grad = None
    look("after a step by hand")


def by_optimizers(optimizers: Sequence[torch.optim.Optimizer], *, keeps: bool) -> None:
    trained(torch.ones(2, 4, requires_grad=True), "after an attack")
    MODEL.zero_grad()
    for _ in range(2):
        trained(torch.ones(2, 4), "after a pass")
    torch.nn.utils.clip_grad_norm_(MODEL.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        look("after a step")
    MODEL.zero_grad(set_to_none=not keeps)
    look("after all")


def main() -> None:
    for _ in range(6):
        by_hand()
    optimizers = [torch.optim.SGD(part.parameters(), 0.01) for part in MODEL]
    for number in count():
        by_optimizers(optimizers, keeps=bool(number % 2))
        print("round", number, flush=True)
        time.sleep(0.01)


main()
