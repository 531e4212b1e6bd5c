"""Forks again and again while others ask the agent, and prints what became of the children.

``fork_storm.py FORKS``: each child logs, imports, starts a thread and looks for what it has of the
agent; the last line but one is how the children ended, as JSON: exit code 0 is well, a negative
one a signal, 9 something of the agent, which is told. ``fork_storm.py METHOD
ROUNDS``: so many DataLoaders with workers by that start method, one after the other. It begins once
there is a file `go`, and does the last of them once there is a file `heard`.
"""

from __future__ import annotations

import collections
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import torch
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))
from children import Data, descriptors, traces_of_agent  # type: ignore[import-not-found]

CHILD_S, IN_FLIGHT = 120, 8
MODULES = (
    "colorsys",
    "chunk",
    "sndhdr",
    "fractions",
    "plistlib",
    "wave",
    "calendar",
    "this_is_none",
)


def files_of_agent() -> list[str]:
    """What this process has open, or mapped, of its parent's run folder."""
    home = os.environ["PROBING_HOME"]
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return [path for path in (*descriptors(), *mapped) if path.startswith(home)]


def child(number: int, model: nn.Module) -> int:
    """What a forked child does; its exit code."""
    signal.alarm(CHILD_S)  # one that hangs is ended by a signal
    logging.getLogger("child").warning("child %d", number)
    for name in MODULES[number % 4 :: 4]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    with torch.no_grad():
        model(torch.ones(1, 4))
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(1))
    thread.start()
    thread.join()
    found = [*traces_of_agent(), *files_of_agent()]
    if found or not done:
        os.write(1, f"found in a child: {found} {done}\n".encode())
        return 9
    return 0


def wait_for(name: str) -> None:
    """Wait until there is a file of that name."""
    while not Path(name).exists():
        time.sleep(0.01)


def storm(forks: int) -> None:
    """A training that forks in every step."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logging.basicConfig(level=logging.INFO, filename=os.devnull)
    ended: collections.Counter[str] = collections.Counter()
    alive: set[int] = set()
    print("ready", flush=True)
    wait_for("go")

    def reap(least: int) -> None:
        while len(alive) > least:
            pid, status = os.waitpid(-1, 0)
            if pid in alive:
                alive.discard(pid)
                ended[str(os.waitstatus_to_exitcode(status))] += 1

    for number in range(forks):
        if number == forks - 1:
            wait_for("heard")
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        logging.getLogger("parent").info("step %d", number)
        pid = os.fork()
        if pid == 0:
            code = 8
            try:
                code = child(number, model)
            finally:
                os._exit(code)
        alive.add(pid)
        reap(IN_FLIGHT)
    reap(0)
    print(json.dumps(ended), flush=True)


def loaders(method: str, rounds: int) -> None:
    """Workers of a DataLoader, once per round."""
    print("ready", flush=True)
    wait_for("go")
    carried = 0
    for number in range(rounds):
        if number == rounds - 1:
            wait_for("heard")
        loader = DataLoader(Data(), num_workers=1, multiprocessing_context=method, timeout=CHILD_S)
        carried += int(torch.cat(list(loader)).reshape(-1, 2)[:, 1].sum())
    print(json.dumps({"0": rounds} if not carried else {"9": carried}), flush=True)


def end(_: int, __: FrameType | None) -> None:
    """Whoever started it has seen enough."""
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    if sys.argv[1].isdecimal():
        storm(int(sys.argv[1]))
    else:
        loaders(sys.argv[1], int(sys.argv[2]))
    print("done", flush=True)
    time.sleep(600)
