"""A data-parallel training on gloo of which one rank waits: `waiting_rank.py WAIT [RANK]`.

Each rank prints `ready` after its first step; the one that waits prints `waiting` just before, and
the others then wait for it. It goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import multiprocessing
import os
import pdb  # noqa: T100
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

LIFETIME_S = 600
FAULT_STEP = 4


def event() -> None:
    """An event that nobody sets."""
    threading.Event().wait()


def condition() -> None:
    """A condition that nobody notifies."""
    changed = threading.Condition()
    with changed:
        changed.wait()


def setter() -> None:
    """An event that a thread sets which reads from a pipe into which nobody writes."""
    ready, pipe = threading.Event(), os.pipe()

    def load() -> None:
        os.read(pipe[0], 1)
        ready.set()

    threading.Thread(target=load, name="loader", daemon=True).start()
    ready.wait()


async def part() -> None:
    """Next to nothing."""


def own_loop() -> None:
    """A coroutine that is waited for in the thread whose event loop is to run it."""

    async def whole() -> None:
        asyncio.run_coroutine_threadsafe(part(), asyncio.get_running_loop()).result()

    asyncio.run(whole())


def in_asyncio() -> None:
    """A future of asyncio that nobody sets."""

    async def fetch() -> None:
        await asyncio.Event().wait()

    asyncio.run(fetch())


def two_locks() -> None:
    """A thread that has one lock and wants the other, which this one has."""
    one, other = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def save() -> None:
        with other:
            both.wait()
            with one:
                pass

    threading.Thread(target=save, name="saver", daemon=True).start()
    with one:
        both.wait()
        with other:
            pass


def keep_lock(path: Path) -> None:
    """Another process of ours, which has the lock of a file."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print("locked", flush=True)
        threading.Event().wait()


def file_lock() -> None:
    """A lock of a file that another process has."""
    path = Path(f"cache-{os.getpid()}.lock").resolve()
    words = [sys.executable, "-u", __file__, "keep_lock", str(path)]
    keeper = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert keeper.stdout is not None
    keeper.stdout.readline()
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def child() -> None:
    """A command that writes more than fits into a pipe that nobody reads."""
    subprocess.Popen(["yes"], stdout=subprocess.PIPE).wait()


def produce(_: object) -> None:
    """Ends before it has put anything into the queue."""


def queue() -> None:
    """An item of a process that has ended."""
    items: multiprocessing.Queue[int] = multiprocessing.Queue()
    multiprocessing.Process(target=produce, args=(items,), daemon=True).start()
    items.get()


def debugger() -> None:
    """A breakpoint that somebody has left in."""
    os.dup2(os.pipe()[0], 0)
    sys.stdin = os.fdopen(0)
    pdb.set_trace()  # noqa: T100
    print("goes on", flush=True)


def pool() -> None:
    """A pool of one worker, whose task waits for another one of the same pool."""
    workers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="uploads")

    def part() -> int:
        return 1

    def whole() -> int:
        inner: Future[int] = workers.submit(part)
        return inner.result()

    workers.submit(whole).result()


class Piped(Dataset[torch.Tensor]):
    """Samples that come through a pipe, into which nobody writes."""

    def __init__(self) -> None:
        self.pipe = os.pipe()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        os.read(self.pipe[0], 1)
        return torch.ones(16)


def loader() -> None:
    """A batch of a worker that waits for data itself."""
    for batch in DataLoader(Piped(), batch_size=1, num_workers=1):
        batch.sum()


WAITS: dict[str, Callable[[], None]] = {
    "event": event,
    "condition": condition,
    "setter": setter,
    "own_loop": own_loop,
    "asyncio": in_asyncio,
    "two_locks": two_locks,
    "file_lock": file_lock,
    "child": child,
    "queue": queue,
    "debugger": debugger,
    "pool": pool,
    "loader": loader,
}


def train(wait: str, rank: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(FAULT_STEP + 1):
        if step == FAULT_STEP and dist.get_rank() == rank:
            print("waiting", flush=True)
            WAITS[wait]()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            print("ready", flush=True)


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    if sys.argv[1] == "keep_lock":
        keep_lock(Path(sys.argv[2]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
