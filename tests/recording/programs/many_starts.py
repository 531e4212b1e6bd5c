"""Starts and stops recording many times, asserting that nothing of that stays; prints `done`."""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections.abc import Callable

import torch
from torch import nn

import probing

MODEL = nn.Sequential(nn.Linear(2, 2), nn.Identity())
X = torch.ones(2)
TORCHS = nn.Module.__call__
MOST_WARM_UP = 30
SPARE_BYTES = 32_768
"""For caches of the interpreter and of torch that are still being filled; a start makes 200 kB."""
SPARE_OBJECTS = 10
SETTLED_S = 60.0
ATEXIT_BYTES = 16
"""For each start: Python keeps a place for each function that was ever registered for its exit."""
RESIDENT_KIB = 24_576
"""For what the C library keeps of memory that threads have given back, however many there were."""


def pause() -> None:
    """Recording is paused and goes on."""
    process = probing.connect(os.getpid())
    process.set("recording", "0")
    assert nn.Module.__call__ is TORCHS
    process.set("recording", "1")
    MODEL(X).sum().backward()


def stop() -> None:
    """The agent goes and comes."""
    probing.stop()
    assert nn.Module.__call__ is TORCHS
    probing.start(trace_rows=64, step_rows=64)
    MODEL(X).sum().backward()


def held() -> tuple[int, int, int]:
    """Bytes of Python's, objects, and references to torch's own function."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0], len(gc.get_objects()), sys.getrefcount(TORCHS)


def resident_kib() -> int:
    """Memory that it shares with no file."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def warm_up(what: Callable[[], None], times: int) -> None:
    """Repeat it until it adds nothing more: on a busy machine the agent's thread imports late."""
    repeat(what, times)
    for _ in range(MOST_WARM_UP):
        before = held()[0]
        repeat(what, 1)
        if held()[0] - before < SPARE_BYTES // 8:
            break


def repeat(what: Callable[[], None], times: int) -> None:
    for _ in range(times):
        what()


if __name__ == "__main__":
    kind, times = {"pause": pause, "stop": stop}[sys.argv[1]], int(sys.argv[2])
    probing.start(trace_rows=64, step_rows=64)
    MODEL(X).sum().backward()
    tracemalloc.start()
    warm_up(kind, min(MOST_WARM_UP, times))
    traced, objects, references, resident = *held(), resident_kib()
    repeat(kind, times)
    end = time.monotonic() + SETTLED_S
    while True:  # the agent's thread may be in the midst of what it does as it begins
        grown = [after - before for after, before in zip(
            (*held(), resident_kib()), (traced, objects, references, resident), strict=True
        )]  # fmt: skip
        is_settled = grown[0] < SPARE_BYTES + ATEXIT_BYTES * times and grown[1] < SPARE_OBJECTS
        if is_settled or time.monotonic() > end:
            break
        time.sleep(0.05)
    print("bytes, objects, references and KiB more:", grown, flush=True)
    assert grown[0] < SPARE_BYTES + ATEXIT_BYTES * times
    assert grown[1] < SPARE_OBJECTS
    assert grown[2] == 0
    assert grown[3] < RESIDENT_KIB
    print("done", flush=True)
