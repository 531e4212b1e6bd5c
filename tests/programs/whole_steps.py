"""Trains in the way that its argument names, and prints what a record of it must say, as JSON.

One line per step: what the script itself knows of its loss, its gradients' norm, its learning rate.
`ready` is printed at the end; then the program waits to be ended.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_, get_total_norm

STEPS = 4


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batch(number: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(6, 4, generator=draw), torch.randn(6, 2, generator=draw)


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def plain() -> None:
    model, optimizer = make()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for step in range(STEPS):
        x, y = batch(step)
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.01)
        lr = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        tell(loss=loss.item(), grad_norm=norm.item(), lr=lr, micro_batches=1, samples=6)


def tokens() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(torch.arange(15).reshape(3, 5) % 7).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def compiled() -> None:
    """The whole step within torch.compile; tells which functions of the agent it has compiled."""
    model, optimizer = make()

    @torch.compile(backend="eager")
    def train(x: Tensor, y: Tensor) -> None:
        mse_loss(model(x), y).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for step in range(STEPS):
        train(*batch(step))
    frames: Any = torch._C._dynamo.eval_frame
    gc.unfreeze()  # what a warm Python had imported
    functions = [thing for thing in gc.get_objects() if type(thing) is FunctionType]
    ours = [f for f in functions if str(f.__module__).startswith("probing.agent")]
    tell(
        functions=len(ours),
        compiled=[f.__qualname__ for f in ours if frames._debug_get_cache_entry_list(f.__code__)],
    )


def accumulate(divide: Callable[[Tensor], Tensor], count: int) -> None:
    model, optimizer = make()
    for step in range(STEPS):
        losses = []
        for number in range(count):
            x, y = batch(step * count + number)
            loss = mse_loss(model(x), y)
            losses.append(loss.item())
            divide(loss).backward()
        optimizer.step()
        optimizer.zero_grad()
        tell(loss=sum(losses) / count, micro_batches=count, samples=6 * count)


def divided() -> None:
    accumulate(lambda loss: loss / 3, 3)


def multiplied() -> None:
    accumulate(lambda loss: loss * 0.25, 4)


def undivided() -> None:
    accumulate(lambda loss: loss, 2)


def scaled() -> None:
    """With a gradient scaler, which leaves out the third step."""
    model, optimizer = make()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(STEPS):
        scale, skipped = scaler.get_scale(), 0
        for attempt in range(2):
            x, y = batch(step)
            if step == 2 and not attempt:
                x = x * float("inf")
            loss = mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = clip_grad_norm_(model.parameters(), 1.0)
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if scaler.get_scale() >= scale:
                break
            skipped += 1
        tell(grad_norm=norm.item(), amp_scale=scale, micro_batches=1 + skipped, last=loss.item())


def two_losses() -> None:
    model, optimizer = make()
    for step in range(STEPS):
        x, y = batch(step)
        out = model(x)
        first, second = mse_loss(out, y), out.abs().mean()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        optimizer.zero_grad()
        tell(loss=first.item() + second.item(), micro_batches=1)


def not_a_number() -> None:
    model, optimizer = make()
    for step in range(STEPS):
        x, y = batch(step)
        loss = mse_loss(model(x), y) * (float("nan") if step == 2 else 1.0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tell(loss_finite=step < 2)


def unclipped() -> None:
    """Without clipping: the norm is what torch computes."""
    model, optimizer = make()
    for step in range(STEPS):
        x, y = batch(step)
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        optimizer.step()
        optimizer.zero_grad()
        tell(own_norm=norm.item())


def closure() -> None:
    model, _ = make()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for step in range(STEPS):
        x, y = batch(step)

        def evaluate(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(evaluate)
        tell(optimizer="LBFGS")


def penalty() -> None:
    """The gradient of a gradient: `torch.autograd.grad` within the forward pass."""
    model, optimizer = make()
    for step in range(STEPS):
        x, y = batch(step)
        x.requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = mse_loss(out, y) + slope.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tell(loss=loss.item(), micro_batches=1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("ready", flush=True)
    time.sleep(600)
