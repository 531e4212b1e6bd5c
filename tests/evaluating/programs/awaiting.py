"""A training in coroutines: `awaits` is long between two steps, `hands over` steps in a thread.

`threads` has two trainings, each in a thread of its own, the second slower.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import torch


def step(network: torch.nn.Module, sgd: torch.optim.Optimizer) -> float:
    error = network(torch.randn(8, 4)).square().mean()
    sgd.zero_grad()
    error.backward()
    sgd.step()
    return error.item()


async def train(*, pause: float, in_thread: bool) -> None:
    network = torch.nn.Linear(4, 1)
    sgd = torch.optim.SGD(network.parameters(), lr=0.05)
    history = []
    while True:
        if in_thread:
            history.append(await asyncio.to_thread(step, network, sgd))
        else:
            history.append(step(network, sgd))
        print("ready" if len(history) == 3 else ".", flush=True)
        await rest(pause)


async def rest(pause: float) -> None:
    before = pause
    await asyncio.sleep(before)


async def heartbeat() -> None:
    history = "of something else"
    for _ in range(len(history) * 10_000):
        await asyncio.sleep(0.05)


async def both(*, pause: float, in_thread: bool) -> None:
    await asyncio.gather(heartbeat(), train(pause=pause, in_thread=in_thread))


def train_alone(name: str, pause: float) -> None:
    network = torch.nn.Linear(4, 1)
    sgd = torch.optim.SGD(network.parameters(), lr=0.05)
    own = name
    while own:
        step(network, sgd)
        time.sleep(pause)


if __name__ == "__main__":
    if sys.argv[1] == "threads":
        threading.Thread(target=train_alone, args=("first", 0.01), daemon=True).start()
        print("ready", flush=True)
        train_alone("second", 0.02)
    hands_over = sys.argv[1] == "hands over"
    asyncio.run(both(pause=0.02 if hands_over else 4.0, in_thread=hands_over))
