"""Trains again and again, each time with one call failing that the agent's hooks make.

A profile function of Python raises in place of the call: from its first time on, whenever it is
made. Prints one JSON object per call: the losses, and how each source stood in the end. Its
argument says which of the calls: one in so many.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import probing
import probing.agent as agent_package
from probing.agent import lifecycle
from probing.safety import guard

STEPS = 5
OURS = os.path.join(os.path.dirname(os.path.realpath(agent_package.__file__)), "")
PACKAGE = os.path.join(os.path.dirname(os.path.realpath(probing.__file__)), "")
RIM = os.path.realpath(guard.__file__)
real_path = functools.cache(os.path.realpath)
"""Asked at each call and return of Python, of a few hundred files."""
Site = tuple[str, int, str]


class InjectedError(Exception):
    """No code of ours expects it."""


class Returns:
    """What functions of ours that torch calls return to it.

    Attributes:
        hooks: The functions that were met.
        invented: Those among them that have returned what they were not given themselves, by a
            function of torch's that they stand in for.
    """

    def __init__(self) -> None:
        self.hooks: set[str] = set()
        self.invented: set[str] = set()
        self._given: dict[int, list[object]] = {}

    def note(self, frame: FrameType, value: object) -> None:
        """A function returns."""
        caller, given = frame.f_back, self._given.pop(id(frame), [])
        if not is_ours(frame):
            is_passed_on = True
        elif caller is not None and (is_ours(caller) or is_in(PACKAGE, caller)):
            is_passed_on = any(value is other for other in given)
        else:
            self.hooks.add(frame.f_code.co_name)
            if isinstance(value, weakref.ref):  # of a weak reference's callback: nobody takes it
                return
            if value is not None and not any(value is other for other in given):
                self.invented.add(f"{frame.f_code.co_name}: {value!r}")
            return
        if is_passed_on and caller is not None and is_ours(caller):
            self._given.setdefault(id(caller), []).append(value)


class Injection:
    """Raises in place of one call; without one, notes which calls there are."""

    def __init__(self, site: Site | None = None) -> None:
        self.site = site
        self.met: dict[Site, int] = {}
        self.raised = 0
        self.returns = Returns()

    def arm(self, *_: object) -> None:
        """Called by the training, now and then: Python disarms a function that has raised."""
        sys.setprofile(self.called)

    def called(self, frame: FrameType, event: str, arg: Any) -> None:
        """See `sys.setprofile`."""
        if event == "return" and self.site is None:
            self.returns.note(frame, arg)
        site = site_of(frame, event, arg)
        if site is None:
            return
        self.met[site] = self.met.get(site, 0) + 1
        if site == self.site:
            self.raised += 1
            raise InjectedError(str(site))


def site_of(frame: FrameType, event: str, arg: Any) -> Site | None:
    """Where one of our functions makes a call; None where it is not one that may fail."""
    caller = frame if event == "c_call" else frame.f_back
    if event not in {"call", "c_call"} or caller is None:
        return None
    if event == "call" and frame.f_code.co_flags & inspect.CO_GENERATOR:
        return None  # it may go on only to be closed, of which Python itself prints a failure
    path = real_path(caller.f_code.co_filename)
    # The guard is the rim: it catches what others let through, once it has been entered.
    if not path.startswith(OURS) or RIM in {path, real_path(frame.f_code.co_filename)}:
        return None
    if event == "c_call":
        called = getattr(arg, "__qualname__", str(arg))
        if called.endswith((".__exit__", ".release")):  # of a lock, which cannot fail
            return None
    else:
        called = frame.f_code.co_name
        # Not a call of theirs, but a piece of the function that stands in, which calls torch's.
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        if "original" in names or not is_ours(frame):
            return None
    return path.removeprefix(OURS), caller.f_lineno, called


def is_ours(frame: FrameType) -> bool:
    return is_in(OURS, frame)


def is_in(folder: str, frame: FrameType) -> bool:
    return real_path(frame.f_code.co_filename).startswith(folder)


class Failing(nn.Module):
    """A module that raises, as some do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("the model's own")


class Model(nn.Module):
    def __init__(self, arm: Callable[..., None]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.failing = Failing()
        self.arm = arm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.arm()
        y: torch.Tensor = self.layers(x)
        self.arm()
        try:
            self.failing(y)
        except ValueError:
            self.arm()
        if y.requires_grad:
            y.register_hook(self.arm)
        return y


def train(arm: Callable[..., None]) -> Iterator[str]:
    """The losses of a short training that meets most of our hooks."""
    torch.manual_seed(0)
    model = Model(arm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    data: Any = [torch.ones(4) * i for i in range(2 * STEPS)]
    loader: DataLoader[torch.Tensor] = DataLoader(data, batch_size=2)
    for batch in loader:
        arm()
        optimizer.zero_grad()
        with probing.span("forward"):
            loss = model(batch).pow(2).mean()
        arm()
        scaler.scale(loss).backward()
        arm()
        scaler.step(optimizer)
        arm()
        scaler.update()
        scheduler.step()
        arm()
        with torch.no_grad():
            model(batch)
        arm()
        probing.metric(loss=1.0)
        yield loss.item().hex()


def run(injection: Injection) -> dict[str, Any]:
    """Train with the agent, while calls of it fail."""
    probing.start(gradients_every=1)
    agent = lifecycle.current()
    assert agent is not None
    try:
        losses = list(train(injection.arm))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        losses = [f"{type(error).__name__}: {error}"]
    sys.setprofile(None)
    reports = agent.training.source_reports()
    told = {r.source: (r.state, r.faults, r.note) for r in reports if r.faults}
    problems = [*agent.problems, *agent.training.problems()]
    probing.stop()
    return {"losses": losses, "sources": told, "problems": problems}


def main(stride: int) -> None:
    alone = list(train(lambda *_: None))
    scout = Injection()
    whole = {"alone": alone, **run(scout), "sites": len(scout.met)}
    returns = {"hooks": sorted(scout.returns.hooks), "invented": sorted(scout.returns.invented)}
    print(json.dumps({**whole, **returns}), flush=True)
    for site in list(scout.met)[::stride]:
        injection = Injection(site)
        answer = run(injection)
        is_left = nn.Module.__call__ is nn.Module._wrapped_call_impl
        more = {"site": site, "is_left": is_left, "raised": injection.raised}
        print(json.dumps({**answer, **more}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
