"""Makes a backward pass that has one inside, and so on, until torch starts a thread for the next.

It is autograd's as that of a device is, and the kernel is told to call it so. It waits there until
there is a file ``on``; then the main thread sleeps. ``known`` has `threading` know that thread.
Prints `inside`, and `over` with what `threading` knows.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

DEPTH = 65
"""From 60 on, torch goes on in another thread."""
MAIN = threading.get_ident()
LAYER = torch.nn.Linear(1, 1)


class Nested(torch.autograd.Function):
    """Its backward pass makes another one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        with torch.enable_grad():
            if ctx.depth:
                LAYER(Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1)).backward()
            elif threading.get_ident() != MAIN:
                stay()
        return gradient, None


def stay() -> None:
    """Wait in autograd's thread until told to go on."""
    Path("/proc/thread-self/comm").write_text("pt_autograd_0")
    if "known" in sys.argv:
        threading.current_thread()
    print("inside", flush=True)
    while not Path("on").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    optimizer = torch.optim.SGD(LAYER.parameters(), lr=0.1)
    for _ in range(3):
        LAYER(torch.ones(1)).backward()
        optimizer.step()
    LAYER(Nested.apply(torch.ones(1, requires_grad=True), DEPTH)).backward()
    known = sorted(thread.name for thread in threading.enumerate())
    print(f"over {known}", flush=True)  # written at once
    time.sleep(600)
