"""Makes two training steps, and in the third is busy in pure Python until it is told to go on.

Its argument says before what: `backward` or `step`. It prints `ready` once it waits there, and sets
`begun` when that has begun.
"""

from __future__ import annotations

import sys
import threading

import torch

go, begun = threading.Event(), threading.Event()


def pause(where: str, step: int) -> None:
    if (where, step) == (sys.argv[1], 2):
        begun.clear()
        print("ready", flush=True)
        while not go.is_set():
            sum(range(1000))


def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.register_step_pre_hook(lambda *_: begun.set())
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.register_hook(lambda _: begun.set())
        pause("backward", step)
        loss.backward()
        pause("step", step)
        optimizer.step()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
