"""A small training whose steps are profiled; prints `ready`, and at its end what it came to.

The first argument says how it goes on after five steps:

    waits      it waits in the midst of a step for the file `go`, and trains for ten steps more
    own        the same, inside of a torch.profiler of its own
    warming    the same, while a torch.profiler of its own warms up
    starts     the same, and then starts a torch.profiler of its own in the midst of a step
    hangs      it trains on until the file `hang` is there, and then hangs in a step, until `go`
    forever    it trains on until it is ended
    compares   it profiles three steps itself, writes trace.json, prints the figures, and ends
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import profiler
from torch.profiler import ProfilerActivity, profile, schedule

from probing.script.profile_mark import MARK

WAY = sys.argv[1]
CPU = [ProfilerActivity.CPU]
PATIENCE_S = 60.0


class Layer(nn.Module):
    """Names what it runs, for the reader of a profile to compare."""

    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.name = name
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with profiler.record_function(f"layer {self.name}"):
            return self.inner(x).relu()


def wait_for(name: str) -> None:
    """Until somebody has made that file."""
    if not Path(name).exists():
        print("waits for", name, flush=True)
    end = time.monotonic() + PATIENCE_S
    while not Path(name).exists() and time.monotonic() < end:
        time.sleep(0.01)


def step(then: Any = None) -> str:
    """One step; returns its loss, to the last bit."""
    optimizer.zero_grad()
    loss = model(torch.randn(16, 32)).square().mean()
    loss.backward()
    if then is not None:
        then()
    optimizer.step()
    return loss.item().hex()


def start_own() -> None:
    """A profiler of the program's own, for a moment."""
    wait_for("go")
    with profile(activities=CPU) as own:
        torch.ones(3).sum()
    print("own profiler saw", len(own.events()) > 0, flush=True)


def hang() -> None:
    if Path("hang").exists():
        print("hangs", flush=True)
        wait_for("go")


def compare() -> None:
    """Three steps under torch.profiler, with marks as the agent's, and torch's own figures."""
    with profile(activities=CPU) as own:
        for number in range(4):
            with profiler.record_function(MARK.format(step=number, time_ns=number, ended_ns=0)):
                pass
            if number < 3:
                step()
    own.export_chrome_trace("trace.json")
    rows = {row.key: [row.count, row.self_cpu_time_total] for row in own.key_averages()}
    print("figures", json.dumps(rows), flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*(Layer(f"{i}", nn.Linear(32, 32)) for i in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = [step() for _ in range(5)]
    print("ready", flush=True)
    if WAY == "compares":
        compare()
    elif WAY == "forever":
        while True:
            step()
            time.sleep(0.01)  # other tests want to run, too
    elif WAY == "hangs":
        while not Path("go").exists():
            step(hang)
        step()
    elif WAY == "own":
        with profile(activities=CPU):
            losses += [step(lambda: wait_for("go")) for _ in range(10)]
    elif WAY == "warming":
        with profile(activities=CPU, schedule=schedule(wait=0, warmup=50, active=1)):
            losses += [step(lambda: wait_for("go")) for _ in range(10)]
    elif WAY == "starts":
        step(lambda: wait_for("begin"))
        step()
        step(start_own)
        step()
    else:
        losses += [step(lambda: wait_for("go")) for _ in range(10)]
    functions = cast("Any", profiler)
    facts = {
        "losses": losses,
        "on": functions._is_profiler_enabled,
        "wrapped": functions._prepare_profiler.__module__ + functions._enable_profiler.__module__,
    }
    print("facts", json.dumps(facts), flush=True)
