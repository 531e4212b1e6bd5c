"""Trains well until it is told to go on, and then makes values that are not finite in one way.

The first argument is the way. After three steps it prints `ready` and trains on; in the step after
the file `go` is there it does what it is told to. While the file `pause` is there it makes no step.
It trains until the file `end` is there, prints the losses to the last bit as `losses [...]`, and
whether any module has a hook left as `hooks N`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

WAY = sys.argv[1]
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Log(nn.Module):
    """Takes a logarithm of what may be negative."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x.abs() + 1 - (10 if is_bad("log") else 0))


class Root(nn.Module):
    """Takes a root of what may be 0: its gradient is infinite there."""

    def forward(self, x: Tensor) -> Tensor:
        shifted = x * 0 if is_bad("root") else x.abs() + 1
        return torch.sqrt(shifted)


class Half(nn.Module):
    """Multiplies in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        by = 1e4 if is_bad("overflow") else 1.0
        return ((x * 100).half() * by).float() / 100


class Center(nn.Module):
    """Takes off a running mean, which keeps what it was given once."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        new = x.detach().mean(0) * (float("nan") if is_bad("statistic") else 1.0)
        self.mean = 0.9 * self.mean + 0.1 * new
        return x - self.mean


class Net(nn.Module):
    """A chain of modules, with a little code of its own between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.act = nn.ReLU(inplace=True)
        self.body = nn.Sequential(Half(), Log(), Root())
        if WAY == "statistic":
            self.body.append(Center())
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.act(self.first(x)))
        if is_bad("between"):
            x = x / 0
        if is_bad("between_backward"):
            x = x + (x * 0).sqrt()
        out: Tensor = self.last(x)
        return out


badness = {"is_on": False}


def is_bad(way: str) -> bool:
    return badness["is_on"] and way == WAY


def batch(number: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(number)
    x, y = torch.randn(6, 4, generator=draw), torch.randn(6, 2, generator=draw)
    if is_bad("data"):
        x[2, 1] = float("nan")
    return x, y


def loss_of(out: Tensor, y: Tensor) -> Tensor:
    loss = mse_loss(out, y)
    if WAY == "tiny":
        loss = loss * 1e-26
    if is_bad("loss"):
        loss = loss * float("inf")
    if is_bad("loss_backward"):
        loss = loss + (out * 0).sqrt().sum()
    return loss


def main() -> None:
    torch.manual_seed(0)
    model: Any = Net()
    watched = model
    if WAY == "compiled":
        model = torch.compile(model, backend="eager")
    if WAY == "compiled_in_place":
        model.compile(backend="eager")
    optimizer = torch.optim.SGD(watched.parameters(), lr=0.01)
    losses = []
    step = 0
    while not (Path("end").exists() if not STEPS else step == STEPS):
        if not STEPS and Path("go").exists():
            badness["is_on"] = True
            if WAY in {"weight", "compiled", "compiled_in_place"}:
                with torch.no_grad():
                    watched.last.weight[1, 3] = float("nan")
        while Path("pause").exists():
            time.sleep(0.005)
        x, y = batch(step)
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        if WAY == "statistic" and not loss.isfinite():
            optimizer.zero_grad()  # as a gradient scaler saves the weights
        optimizer.step()
        losses.append(float(loss.item()).hex())
        step += 1
        if step == 3:
            print("ready", flush=True)
        time.sleep(0.005)
    hooks = [
        len(hooks)
        for module in [model, *watched.modules()]
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._forward_hooks_with_kwargs,
            module._forward_pre_hooks_with_kwargs,
            module._backward_hooks,
        )
    ]
    tensors = [parameter for parameter in watched.parameters() if parameter._backward_hooks]
    border = vars(watched).get("_compiled_call_impl")
    is_ours = "finite_hooks" in getattr(getattr(border, "__code__", None), "co_filename", "")
    print("hooks", sum(hooks) + len(tensors) + is_ours, flush=True)
    print("losses", json.dumps(losses), flush=True)


main()
