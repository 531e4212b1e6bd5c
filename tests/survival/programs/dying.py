"""Has children that record and die, and prints of each what it had told of its rows by then.

Each argument is a way to die and how often. A child records a figure and a module call, tells the
number of them through a pipe, and goes on with the next; ``sigkill`` comes from outside, at any
moment. Prints one JSON object per child: its pid, its way, its status, the last number told.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable

import torch

import probing

NUMBER = struct.Struct("<q")
ROWS = 100
"""How many a child records that dies by itself: more than its rings hold."""
RINGS = ("trace_rows", "mark_rows", "step_rows", "batch_rows", "gradient_rows", "memory_rows")
MOST = 300
"""How many it has recorded at the most when it is killed."""


def segfault() -> None:
    ctypes.string_at(0)


def raise_error() -> None:
    raise RuntimeError("the training's own error")


WAYS: dict[str, Callable[[], object]] = {
    "segfault": segfault,
    "abort": os.abort,
    "os._exit": lambda: os._exit(4),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "exception": raise_error,
    "exec": lambda: os.execv("/bin/true", ["true"]),
}


def record(told: int, way: str) -> None:
    """Runs in the child: record, tell, and die in time."""
    probing.start(**dict.fromkeys(RINGS, 64))
    model, given, number = torch.nn.Linear(2, 2), torch.ones(2), 0
    while number != ROWS or way == "sigkill":
        number += 1
        probing.metric(number=number)
        model(given)
        os.write(told, NUMBER.pack(number))
    WAYS[way]()


def follow(pid: int, told: int, moments: random.Random | None) -> int:
    """Read what a child tells until it has ended, killing it on the way; returns the last."""
    kill_at, number = moments.randrange(1, MOST) if moments is not None else -1, 0
    while data := os.read(told, NUMBER.size):
        (number,) = NUMBER.unpack(data)
        if moments is not None and number == kill_at:
            time.sleep(moments.uniform(0, 0.001))  # the moment is the fault itself
            os.kill(pid, signal.SIGKILL)
    return number


def main(way: str, times: int, moments: random.Random) -> None:
    for _ in range(times):
        told, tell = os.pipe()
        if not (pid := os.fork()):
            os.close(told)
            record(tell, way)
        os.close(tell)
        number = follow(pid, told, moments if way == "sigkill" else None)
        os.close(told)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"way": way, "pid": pid, "status": status, "told": number}), flush=True)


if __name__ == "__main__":
    seeded = random.Random(7)
    for name, count in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        main(name, int(count), seeded)
