"""Makes two training steps, and prints `ready` and hangs in the way its argument names."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch

PR_SET_PDEATHSIG = 1


def sleep() -> None:
    time.sleep(600)


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()


def gil() -> None:
    """A C call that keeps the interpreter lock for ever."""
    ctypes.PyDLL(None).sleep(600)


def spin() -> None:
    while True:
        pass


class Stuck(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("ready", flush=True)  # from here on, so that it is on record who is stuck
        time.sleep(600)
        return x


class StuckBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        time.sleep(600)
        return grad


def forward() -> None:
    Stuck()(torch.ones(1))


def backward() -> None:
    StuckBackward.apply(model(torch.ones(2))).sum().backward()


class Endless(torch.utils.data.Dataset[torch.Tensor]):
    """A data set whose items never come."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        end_with_parent()
        time.sleep(600)
        return torch.ones(1)


def data_loader() -> None:
    next(iter(torch.utils.data.DataLoader(Endless(), num_workers=1)))


def all_reduce() -> None:
    """The other rank joins, and does not come to the collective."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        env = {**os.environ, "PROBING": "0"}
        with subprocess.Popen([sys.executable, __file__, "other_rank", store], env=env):
            join(0, store)
            torch.distributed.all_reduce(torch.ones(1))


def other_rank() -> None:
    end_with_parent()
    join(1, sys.argv[2])
    time.sleep(600)


def join(rank: int, store: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    if sys.argv[1] == "other_rank":
        other_rank()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
    if sys.argv[1] != "forward":
        print("ready", flush=True)
    globals()[sys.argv[1]]()
