"""Has children of one kind, each of which calls a model, and prints what they became.

The argument is one of: fork, spawn, forkserver (a DataLoader's workers), os_fork, ranks_fork,
ranks_spawn (processes that train by themselves).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    """Calls a module in the worker, and tells what the worker has of the agent."""

    def __init__(self) -> None:
        self.model = nn.Linear(2, 2)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        self.model(torch.ones(2))
        return torch.tensor([os.getpid(), len(traces_of_agent())])


def traces_of_agent() -> list[str]:
    """What of the agent is in this process: its wrapper, threads, sockets."""
    import threading

    is_wrapped = nn.Module.__call__ is not nn.Module._wrapped_call_impl
    threads = [t.name for t in threading.enumerate() if t.name.startswith("probing-")]
    sockets, held = [], descriptors()
    for line in Path("/proc/self/net/unix").read_text().splitlines():
        path, inode = line.rsplit(" ", 1)[-1], line.split()[6]
        if path.endswith("/sock") and f"socket:[{inode}]" in held:
            sockets.append(line)
    return ["wrapper"] * is_wrapped + threads + sockets


def descriptors() -> list[str]:
    """What the open descriptors of this process lead to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself, or of a thread
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


def loader(method: str) -> None:
    data = DataLoader(Data(), num_workers=2, multiprocessing_context=method)
    model = nn.Linear(2, 2)
    rows = torch.cat(list(data)).reshape(-1, 2)
    model(torch.ones(2))
    assert rows[:, 1].sum() == 0, f"workers carry traces of the agent: {rows}"
    assert (rows[:, 0] != os.getpid()).all()


def os_fork() -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(2))
    for _ in range(20):
        child = os.fork()
        if child == 0:
            for _ in range(100):
                model(torch.ones(2))
            os._exit(len(traces_of_agent()))
        _, status = os.waitpid(child, 0)
        assert status == 0, f"status {status}"
    model(torch.ones(2))


def rank(number: int) -> None:
    os.environ["RANK"] = str(number)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
    # One write, for the ranks share their output.
    os.write(1, f"rank {number} {os.getpid()}\n".encode())
    time.sleep(600)


def ranks(method: str) -> None:
    from torch.multiprocessing.spawn import start_processes

    start_processes(rank, nprocs=2, start_method=method, join=True)


if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "os_fork":
        os_fork()
    elif kind.startswith("ranks_"):
        ranks(kind.removeprefix("ranks_"))
    else:
        loader(kind)
    print("done", flush=True)
    time.sleep(600)
