"""Trains in the way that its argument names, and ends; what a step is differs from way to way.

The last line is JSON: how many steps the script itself has made, and more that it knows.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import probing

torch.set_num_threads(1)
X, Y = torch.randn(8, 4), torch.randn(8, 1)


def net(out: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, out))


def sgd(module: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=lr)


def critic_step(gen: nn.Module, critic: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    with torch.no_grad():
        fake = gen(X)
    loss = critic(fake).mean() - critic(X).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def actor_step(gen: nn.Module, critic: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    loss = 100 - critic(gen(X)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def gan(critics: int = 1, *, actor_first: bool = False, rounds: int = 10) -> dict[str, Any]:
    gen, critic = net(4), net()
    opt_gen, opt_critic = sgd(gen, 1e-3), sgd(critic, 2e-3)
    last: dict[str, float] = {}
    for _ in range(rounds):
        if actor_first:
            last["opt_gen"] = actor_step(gen, critic, opt_gen)
        for _ in range(critics):
            last["opt_critic"] = critic_step(gen, critic, opt_critic)
        if not actor_first:
            last["opt_gen"] = actor_step(gen, critic, opt_gen)
    return {"steps": rounds, "last": last, "per_step": critics + 1}


def twelve() -> dict[str, Any]:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
    optimizers = [torch.optim.SGD(layer.parameters(), lr=1e-2) for layer in model]
    losses = []
    for _ in range(6):
        loss = model(X).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 12}


def in_backward(*, marks: bool = False) -> dict[str, Any]:
    model = net()
    optimizers = {id(p): torch.optim.SGD([p], lr=1e-2) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[id(parameter)].step()
        optimizers[id(parameter)].zero_grad()
        time.sleep(0.005)
        if marks and parameter.shape == (8, 4):
            probing.step()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    losses = []
    for _ in range(6):
        loss = (model(X) - Y).square().mean()
        loss.backward()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 1}


def phases() -> dict[str, Any]:
    first, second = net(), net()
    for model, optimizer in ((first, sgd(first)), (second, sgd(second))):
        for _ in range(10):
            optimizer.zero_grad()
            (model(X) - Y).square().mean().backward()
            optimizer.step()
    return {"steps": 20, "per_step": 1}


def shared() -> dict[str, Any]:
    model = net()
    parts = [[p for p in model.parameters() if (p.dim() > 1) is wide] for wide in (True, False)]
    optimizers = [torch.optim.SGD(parts[0], lr=1e-2), torch.optim.AdamW(parts[1], lr=1e-3)]
    losses = []
    for _ in range(8):
        loss = (model(X) - Y).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return {"steps": 8, "losses": losses, "per_step": 2}


def by_hand() -> dict[str, Any]:
    model, losses = net(), []
    for step in range(6):
        for _ in range(2):
            loss = (model(X) - Y).square().mean() / 2
            loss.backward()
        losses.append(2 * loss.item())
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.data -= 1e-2 * parameter.grad
                parameter.grad = None if step % 2 else torch.zeros_like(parameter)
    return {"steps": 6, "losses": losses, "open": 1}


def zeroed_late() -> dict[str, Any]:
    """Steps made by hand that only the next step's zeroing shows, behind its call of the model."""
    model, losses = net(), []
    for _ in DataLoader(TensorDataset(X, Y), batch_size=1):
        loss = (model(X) - Y).square().mean()
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data -= 1e-2 * parameter.grad
    return {"steps": len(losses), "losses": losses}


def threads() -> dict[str, Any]:
    """Two models, each trained in a thread of its own, neither of which ends before the other."""
    told: dict[str, list[float]] = {"first": [], "second": []}
    both = threading.Barrier(2)

    def train(name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        while len(told[name]) < 200:
            loss = (model(X) - Y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            told[name].append(loss.item())
        both.wait()

    models = {"first": net(), "second": net()}
    started = [
        threading.Thread(target=train, args=(name, model, sgd(model, lr)))
        for (name, model), lr in zip(models.items(), (1e-3, 2e-3), strict=True)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return {"steps": 200, "per_step": 1, "settled": 0, **told}


def at_once() -> dict[str, Any]:
    """The same, of which one begins while the recorder learns of the other's model."""
    from probing.agent.sources.steps.ends.main_model import MainModel

    take, calls, has_begun = MainModel.take, itertools.count(), threading.Event()

    def take_slowly(self: MainModel, call: Any) -> Any:
        if next(calls):
            has_begun.set()
        else:
            has_begun.wait(1)  # in vain, where the other one has to wait
        return take(self, call)

    MainModel.take = take_slowly
    return threads()


def functional() -> dict[str, Any]:
    model, losses = net(), []
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    for _ in range(6):
        loss = (torch.func.functional_call(model, parameters, (X,)) - Y).square().mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        parameters = {
            name: (p - 1e-2 * g).detach().requires_grad_()
            for (name, p), g in zip(parameters.items(), gradients, strict=True)
        }
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "open": 1}


def batches() -> Iterator[tuple[Tensor, ...]]:
    while True:
        yield from DataLoader(TensorDataset(X, Y), batch_size=4)


@torch.no_grad()
def estimate(model: nn.Module, loader: Iterator[tuple[Tensor, ...]], count: int) -> None:
    model.eval()
    for _ in range(count):
        x, y = next(loader)
        (model(x) - y).square().mean().item()
        time.sleep(0.02)
    model.train()


def evaluated() -> dict[str, Any]:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train, valid, losses, longest = batches(), batches(), [], 0.0
    for step in range(7):
        if step % 3 == 0:
            estimate(model, valid, 5)
        began = time.perf_counter()
        x, y = next(train)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        longest = max(longest, time.perf_counter() - began)
        losses.append(loss.item())
    return {"steps": 7, "losses": losses, "calls": [5, 5, 5], "before": [0, 3, 6]}


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.encoder(x).relu())
        return result


def in_parts() -> dict[str, Any]:
    """Evaluated by calls of a model's parts; then its head is trained on what the rest makes."""
    model = Halves()
    optimizer, losses = sgd(model), []
    train, valid = batches(), batches()
    for step in range(6):
        if step == 2:
            model.eval()
            with torch.no_grad():
                for _ in range(5):
                    model.head(model.encoder(next(valid)[0]).relu())
                    time.sleep(0.02)
            model.train()
        x, y = next(train)
        if step > 3:
            model.encoder.eval()
            with torch.no_grad():
                features = model.encoder(x).relu()
        found = model(x) if step <= 3 else model.head(features)
        optimizer.zero_grad()
        loss = (found - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 1}


def rollouts() -> dict[str, Any]:
    policy = net()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        with torch.no_grad():
            for _ in range(32):
                policy(X[:1])
        loss = (policy(X) - Y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 4, "losses": losses}


def teacher() -> dict[str, Any]:
    student, master = net(), net()
    master.eval().requires_grad_(False)
    optimizer, losses = sgd(student), []
    for _ in range(5):
        with torch.no_grad():
            wanted = master(X)
        loss = (student(X) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 5, "losses": losses, "evaluations": 0}


def closure() -> dict[str, Any]:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def compute() -> Tensor:
        optimizer.zero_grad()
        loss = (model(X) - Y).square().mean()
        loss.backward()
        return loss

    firsts = [float(optimizer.step(compute)) for _ in range(4)]
    return {"steps": 4, "firsts": firsts}


def attacked(passes: int = 12) -> dict[str, Any]:
    """Gradients of many attacks on the input before each step, thrown away; none at the last."""
    model = net()
    optimizer, losses = sgd(model), []
    for step in range(6):
        delta = torch.zeros_like(X, requires_grad=True)
        for _ in range(passes):
            attack = (model(X + delta) - Y).square().mean()
            if step % 2:
                (grad,) = torch.autograd.grad(attack, delta)
            else:
                attack.backward()
                assert delta.grad is not None
                grad, delta.grad = delta.grad, None
            delta.data += 0.1 * grad.sign()
        optimizer.zero_grad()
        loss = (model(X + delta.detach()) - Y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 1}


def policy() -> dict[str, Any]:
    """One sample to act on, then a whole batch for targets: the same network, without gradients."""
    model = net(4)
    optimizer, losses = sgd(model), []
    for _ in range(5):
        with torch.no_grad():
            model(X[:1])
            target = model(X) + 1
        loss = (model(X) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 5, "losses": losses}


def turns() -> dict[str, Any]:
    """A policy acts and its values are asked for, in turn, before the steps on what came of it."""
    actor, critic = net(4), net()
    optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=1e-2)
    losses = []
    for _ in range(3):
        with torch.no_grad():
            for _ in range(6):
                actor(X[:1]), critic(X[:1])
        for _ in range(2):
            loss = actor(X).square().mean() + (critic(X) - Y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"steps": 6, "losses": losses, "samples": [8] * 6}


def cached() -> dict[str, Any]:
    """Gradients cached as GradCache does, with an evaluation; then plain steps with another one."""
    encoder = net(4)
    optimizer = sgd(encoder)
    losses = []
    for step in range(6):
        if step == 3:
            encoder.eval()
            with torch.no_grad():
                for _ in range(3):
                    encoder(X)
            encoder.train()
        with torch.no_grad():
            reps = torch.cat([encoder(part) for part in X.split(2)])
        reps.requires_grad_()
        loss = (reps @ reps.T).square().mean()
        loss.backward()
        optimizer.zero_grad()
        assert reps.grad is not None
        for part, gradient in zip(X.split(2), reps.grad.split(2), strict=True):
            torch.dot(encoder(part).flatten(), gradient.flatten()).backward()
        optimizer.step()
        losses.append(loss.item())
    for _ in range(3):
        with torch.no_grad():
            for part in X.split(2):
                encoder(part)
        loss = encoder(X).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 9, "losses": losses}


def sampled() -> dict[str, Any]:
    """An energy: passes of samples through the frozen model before each step, and two losses."""
    model = net()
    optimizer = sgd(model)
    losses, firsts, lasts = list[float](), list[float](), list[float]()
    for _ in range(5):
        model.requires_grad_(requires_grad=False)
        x = torch.rand(2, 4, requires_grad=True)
        for _ in range(3):
            energy = model(x).sum()
            energy.backward()
            firsts += [energy.item()] if len(firsts) == len(losses) else []
            assert x.grad is not None
            with torch.no_grad():
                x -= 0.1 * x.grad
            x.grad = None
        model.requires_grad_(requires_grad=True)
        out = model(torch.cat([X, x.detach()]))
        optimizer.zero_grad()
        first, last = out.square().mean(), out.mean()
        first.backward(retain_graph=True)
        last.backward()
        optimizer.step()
        losses.append((first + last).item())
        lasts.append(last.item())
    return {"steps": 5, "losses": losses, "firsts": firsts, "lasts": lasts, "samples": 10}


def labelled() -> dict[str, Any]:
    """Pseudo labels in training mode, behind a validation in evaluation mode."""
    model = net()
    optimizer = sgd(model)
    losses = []
    for step in range(6):
        if step in {2, 4}:
            model.eval()
            with torch.no_grad():
                model(X)
            model.train()
        with torch.no_grad():
            labels = model(X)
        loss = (model(X + 0.1) - labels).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses}


def temperature() -> dict[str, Any]:
    """A critic, an actor and a number that no module has, as soft actor-critic trains them."""
    actor, critic = net(4), net()
    log_alpha = torch.zeros(1, requires_grad=True)
    optimizers = sgd(critic), sgd(actor), torch.optim.SGD([log_alpha], lr=1e-2)
    for _ in range(5):
        entropy = actor(X).square().mean().detach()
        for optimizer in optimizers:
            if optimizer is optimizers[0]:
                loss = (critic(X) - Y).square().mean()
            elif optimizer is optimizers[1]:
                loss = critic(actor(X)).mean()
            else:
                loss = (log_alpha.exp() * entropy).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {"steps": 5, "per_step": 3, "settled": 0}


def by_forward(*, marks: bool = False) -> dict[str, Any]:
    """Two calls and no backward pass in each step, as zeroth-order methods train."""
    model = net()
    for _ in range(5):
        losses = []
        for sign in (1, -2):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(torch.randn_like(p), alpha=1e-3 * sign)
                losses.append(float((model(X) - Y).square().mean()))
        if marks:
            probing.step()
    rows = probing.connect(os.getpid()).live("sources").dicts()
    (note,) = (row["note"] for row in rows if row["source"] == "optimizers")
    # The call before the first mark but one is taken for inference: nothing shows what it is yet.
    return {"steps": 1 + 5 if marks else 10, "note": note}


def second_phase() -> dict[str, Any]:
    """LBFGS behind another optimizer: its many passes in one step are of that step."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        (model(X) - Y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    last = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=12, tolerance_change=0)

    def compute() -> Tensor:
        last.zero_grad()
        loss = (model(X) - Y).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        last.step(compute)
    return {"steps": 6}


def layerwise() -> dict[str, Any]:
    """Each layer with a loss and an optimizer of its own, as the forward-forward algorithm has."""
    layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)])
    optimizers = [sgd(layer) for layer in layers]
    for _ in range(6):
        h = X
        for layer, optimizer in zip(layers, optimizers, strict=True):
            out = layer(h)
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
            h = out.detach()
    return {"steps": 6, "per_step": 3, "settled": 0}


class Around(torch.optim.Optimizer):
    """Steps another optimizer, as Lookahead does."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


class Derived(torch.optim.SGD):
    """Calls the step of its base, for which torch calls its hooks as well."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def wrapped() -> dict[str, Any]:
    model = net()
    sgd(net())  # from now on torch calls hooks around the step of the base class
    optimizer = Around(Derived(model.parameters(), lr=1e-2))
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = (model(X) - Y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 1}


def clipped() -> dict[str, Any]:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    losses, before, after = [], [], []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (model(X) - Y).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        before.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.25)))
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        after.append(float(nn.utils.get_total_norm(grads)))
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return {"steps": 4, "losses": losses, "norms": [before, after]}


def overflowing() -> dict[str, Any]:
    """Every step is left out, until nothing is left of the scale."""
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-120)
    losses = []
    for _ in range(120):
        optimizer.zero_grad()
        loss = ((model(X) - Y).square().mean() * 1e-300).sqrt()  # its gradient is not finite
        scaler.scale(loss + 1).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item() + 1)
    return {"losses": losses}


def left_out() -> dict[str, Any]:
    """Two optimizers of one step, of which the scaler leaves out both, the first or the last."""
    body, head = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizers = [sgd(body), sgd(head)]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    losses, skipped, count = list[float](), list[int](), 0
    for step in range(12):
        hidden = body(X * (torch.inf if step == 0 else 1))
        out = head(hidden)
        if step == 5:
            hidden.register_hook(lambda gradient: gradient * torch.inf)
        loss = (out - Y).square().mean()
        scaler.scale(loss).backward()
        if step == 8:
            head.weight.grad.fill_(torch.inf)  # type: ignore[union-attr]
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
        count += {0: 2, 5: 1, 8: 1}.get(step, 0)
        if step:
            losses.append(loss.item())
            skipped.append(count)
            count = 0
    return {"steps": 11, "losses": losses, "skipped": skipped}


def scaled_first() -> dict[str, Any]:
    """Losses are divided once they were scaled, or added."""
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    losses = []
    for step in range(8):
        parts = [(model(X + part) - Y).square().mean() for part in range(2)]
        if step < 4:
            for part in parts:
                (scaler.scale(part) / len(parts)).backward()
            losses.append(sum(part.item() for part in parts) / len(parts))
        else:
            sum(map(scaler.scale, parts)).backward()  # type: ignore[union-attr]
            losses.append(sum(part.item() for part in parts))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {"steps": 8, "losses": losses, "per_step": 1}


def scaled_in_parts() -> dict[str, Any]:
    """Of the losses of a step one is scaled: the others hardly train anything."""
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for _ in range(4):
        first, second = ((model(X + part) - Y).square().mean() for part in range(2))
        (scaler.scale(first) + second).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {"steps": 4}


class Direct(nn.Module):
    """Is called as `model.forward(x)`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = nn.ModuleList([nn.ReLU(), nn.Linear(8, 1)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.rest:
            x = layer(x)
        return x


def forward() -> dict[str, Any]:
    model = Direct()
    optimizer, losses = sgd(model), []
    for _ in range(4):
        loss = (model.forward(X) - Y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 4, "losses": losses}


async def train(model: nn.Module, steps: int, pauses: int) -> list[float]:
    """Other tasks go on between the passes, and before the optimizer steps."""
    optimizer, losses = sgd(model), []
    for _ in range(steps):
        loss = (model(X) - Y).square().mean()
        await asyncio.sleep(0)
        optimizer.zero_grad()
        loss.backward()
        await asyncio.sleep(0)
        optimizer.step()
        losses.append(loss.item())
        for _ in range(pauses):
            await asyncio.sleep(0)
    return losses


def tasks() -> dict[str, Any]:
    """Two models, each in a task of its own, in one thread."""
    first, second = net(), net()

    async def both() -> tuple[list[float], list[float]]:
        return await asyncio.gather(train(first, 12, 0), train(second, 8, 3))

    of_first, of_second = asyncio.run(both())
    return {"steps": 20, "per_step": 1, "settled": 0, "first": of_first, "second": of_second}


def ensemble() -> dict[str, Any]:
    """Three models with an optimizer each: all are called, then all passes, then all steps."""
    first, second, third = net(), net(), net()
    models = (first, second, third)
    optimizers = [sgd(model) for model in models]
    last: list[float] = []
    for _ in range(5):
        losses = [(model(X) - Y).square().mean() for model in models]
        for loss in losses:
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        last = [loss.item() for loss in losses]
    return {"steps": 5, "per_step": 3, "settled": 0, "last": last}


def one_behind_the_other() -> dict[str, Any]:
    """A critic that is not called before the actor's first step, nor in any other of its steps."""
    actor, critic = net(4), net()
    optimizers = sgd(actor), sgd(critic)
    for _ in range(3):
        with torch.no_grad():
            for _ in range(4):
                actor(X[:1])
        for _ in range(2):
            for model, optimizer in zip((actor, critic), optimizers, strict=True):
                optimizer.zero_grad()
                model(X).square().mean().backward()
                optimizer.step()
    return {"steps": 6, "per_step": 2, "settled": 0}


def heads() -> dict[str, Any]:
    """One optimizer over a trunk and heads that the script calls itself, one of them later.

    Every other pass begins with the losses of both.
    """
    enc, first, second, late = net(8), nn.Linear(8, 2), nn.Linear(8, 3), nn.Linear(8, 1)
    parts = (enc, first, second, late)
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    losses = []
    for step in range(6):
        hidden = enc(X)
        called = (first, second) if step < 4 else (first, late)
        both = [head(hidden).square().mean() for head in called]
        optimizer.zero_grad()
        if step % 2:
            torch.autograd.backward(scaler.scale(both))
        else:
            scaler.scale(torch.stack(both).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(sum(loss.item() for loss in both))
    return {"steps": 6, "losses": losses, "per_step": 1}


def penalty() -> dict[str, Any]:
    """A penalty on gradients within the loss, and an inner step of which no gradient is kept."""
    model = net()
    optimizer, losses = sgd(model), []
    for step in range(6):
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=step % 2 == 0)
        loss = (model(X) - Y).square().mean() + (slope.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 1}


def bare() -> dict[str, Any]:
    """Tensors without a module, updated by hand after two passes each."""
    weight, bias = torch.randn(4, 1).requires_grad_(), torch.zeros(1, requires_grad=True)
    losses = []
    for step in range(6):
        for _ in range(2):
            loss = (X @ weight + bias - Y).square().mean() / 2
            loss.backward()
        losses.append(2 * loss.item())
        with torch.no_grad():
            for tensor in (weight, bias):
                assert tensor.grad is not None
                tensor.sub_(tensor.grad, alpha=1e-2)
                tensor.grad = None if step % 2 else torch.zeros_like(tensor)
    return {"steps": 6, "losses": losses, "open": 1}


def retried() -> dict[str, Any]:
    """A backward pass fails, as for want of memory, and the step is done in two smaller ones."""
    model = net()
    optimizer = sgd(model)
    losses = []

    def fail(_: Tensor) -> None:
        raise MemoryError

    for step in range(6):
        out = model(X)
        if step == 3:
            out.register_hook(fail)
        loss = (out - Y).square().mean()
        try:
            loss.backward()
        except MemoryError:
            optimizer.zero_grad()
            halves = [
                (model(X[part]) - Y[part]).square().mean() / 2 for part in (slice(4), slice(4, 8))
            ]
            for half in halves:
                half.backward()
            loss = sum(halves, torch.zeros(()))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"steps": 6, "losses": losses, "per_step": 1}


def windows() -> dict[str, Any]:
    """Gradients of four micro-batches are accumulated; the last window of an epoch is a part.

    A step is made once the loader has said that it is at its end.
    """
    model = net()
    optimizer = sgd(model)
    steps = list[list[float]]()
    for count in (4, 1, 4, 3, 4, 2):
        losses = []
        for (x,) in DataLoader(TensorDataset(torch.randn(8 * count, 4)), batch_size=8):
            loss = (model(x) - Y).square().mean()
            (loss / 4).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        steps.append(losses)
    return {
        "steps": 6,
        "losses": [sum(losses) / len(losses) for losses in steps],
        "firsts": [losses[0] for losses in steps],
        "lasts": [losses[-1] for losses in steps],
        "samples": [8 * len(losses) for losses in steps],
        "counts": [len(losses) for losses in steps],
    }


def part_of_four(out: Tensor, y: Tensor) -> float:
    loss = (out - y).square().mean()
    (loss / 4).backward()
    return loss.item()


def in_pipeline(model: nn.Module, parts: list[tuple[Tensor, ...]], ahead: int) -> list[float]:
    """Forward passes are made so many ahead of the backward ones."""
    outs, found = list[Tensor](), list[float]()
    for number, (x, _) in enumerate(parts):
        outs.append(model(x))
        if number >= ahead:
            found.append(part_of_four(outs[number - ahead], parts[number - ahead][1]))
    for place in range(len(found), len(parts)):
        found.append(part_of_four(outs[place], parts[place][1]))
    return found


def evaluated_amid(model: nn.Module, parts: list[tuple[Tensor, ...]]) -> list[float]:
    found = list[float]()
    for x, y in parts:
        if len(found) == 1:
            model.eval()
            with torch.no_grad():
                model(torch.randn(50, 4)), model(torch.randn(50, 4))
            model.train()
        found.append(part_of_four(model(x), y))
    return found


def halved(model: nn.Module) -> list[float]:
    """A call that fails is done again in two halves."""

    def fail(*_: object) -> None:
        raise MemoryError

    handle = model.register_forward_pre_hook(fail)
    try:
        model(torch.cat([X, X]))
    except MemoryError:
        handle.remove()
    return [part_of_four(model(X), Y) for _ in range(4)]


def ahead() -> dict[str, Any]:
    """Four micro-batches in each step, as pipelines make them, and amid other things."""
    model = net()
    optimizer = sgd(model)
    train, valid, losses = batches(), batches(), list[float]()
    for step in range(8):
        parts = [next(train) for _ in range(4)] if step < 6 else []
        if 0 < step < 4:
            found = in_pipeline(model, parts, 1 if step % 2 else 4)
        elif step == 4:
            found = in_pipeline(model, parts, 0)
        elif step in {0, 5}:
            found = evaluated_amid(model, parts)
        elif step == 6:
            found = []
            for number in range(4):
                if number == 2:
                    estimate(model, valid, 2)
                x, y = next(train)
                found.append(part_of_four(model(x), y))
        else:
            found = halved(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(found) / 4)
    return {"steps": 8, "losses": losses, "per_step": 1}


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "gan": gan,
    "critics": lambda: gan(5),
    "actor_first": lambda: gan(5, actor_first=True),
    "twelve": twelve,
    "in_backward": in_backward,
    "marked_in_backward": lambda: in_backward(marks=True),
    "overflowing": overflowing,
    "left_out": left_out,
    "scaled_first": scaled_first,
    "scaled_in_parts": scaled_in_parts,
    "phases": phases,
    "shared": shared,
    "by_hand": by_hand,
    "zeroed_late": zeroed_late,
    "threads": threads,
    "at_once": at_once,
    "functional": functional,
    "evaluated": evaluated,
    "in_parts": in_parts,
    "rollouts": rollouts,
    "teacher": teacher,
    "closure": closure,
    "wrapped": wrapped,
    "attacked": attacked,
    "policy": policy,
    "turns": turns,
    "cached": cached,
    "sampled": sampled,
    "labelled": labelled,
    "temperature": temperature,
    "by_forward": by_forward,
    "marked_by_forward": lambda: by_forward(marks=True),
    "second_phase": second_phase,
    "layerwise": layerwise,
    "clipped": clipped,
    "forward": forward,
    "tasks": tasks,
    "ensemble": ensemble,
    "one_behind_the_other": one_behind_the_other,
    "heads": heads,
    "penalty": penalty,
    "bare": bare,
    "retried": retried,
    "windows": windows,
    "ahead": ahead,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    told = WAYS[sys.argv[1]]()
    told = {key: sorted(v) if isinstance(v, set) else v for key, v in told.items()}
    print(json.dumps({"digest": 0, **told}), flush=True)
