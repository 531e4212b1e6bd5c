"""Trains in its main thread while other threads do all that a process can be busy with.

Prints `ready` and the names of its workers, each of which counts in the file `counters` how often
it came round. Each step of the main thread writes a line into the file `steps`, which depends on
nothing but its number: exact losses and random numbers. Workers check what they get, and an error
of one ends the program. SIGTERM ends it cleanly, with exit code 0 and `done`.

`bare` trains without torch. `--alone N` makes N steps with no worker beside them.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import faulthandler
import gc
import importlib.util
import json
import logging  # noqa: F401 - registers functions for forks, of which one in the act would miss one
import mmap
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from types import FrameType

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
LIBC.malloc.argtypes = (ctypes.c_size_t,)
LIBC.free.argtypes = (ctypes.c_void_p,)
PR_SET_PDEATHSIG = 1
CHILDS_CODE = 7
ALARM_S = 0.02
OURS = ("colorsys", "sched", "graphlib", "netrc", "stringprep")
# What children import shares nothing with it: a child that is born while another thread is in the
# middle of an import waits for ever when it imports the same.
CHILDS = ("asyncio", "uuid", "csv", "html.parser", "quopri", "xml.dom.minidom")

over = threading.Event()
Worker = Iterator[None]
"""Does one round of its work between two values."""


def nap(draw: random.Random, longest_s: float = 0.004) -> None:
    time.sleep(draw.random() * longest_s)


def multiply(draw: random.Random) -> Worker:
    import numpy as np

    matrix = np.random.default_rng(0).standard_normal((160, 160))
    right = matrix @ matrix
    while True:
        assert ((matrix @ matrix) == right).all()
        yield


def infer(draw: random.Random) -> Worker:
    import torch

    # Modules would be made with the random numbers of the training.
    generator = torch.Generator().manual_seed(5)
    first, second = (torch.randn(shape, generator=generator) for shape in ((128, 64), (8, 128)))
    x = torch.randn(32, 64, generator=generator)

    def call() -> torch.Tensor:
        gelu = torch.nn.functional.gelu
        return torch.nn.functional.linear(gelu(torch.nn.functional.linear(x, first)), second)

    right = call()
    with torch.no_grad():
        while True:
            assert torch.equal(call(), right)
            nap(draw)
            yield


def allocate(draw: random.Random) -> Worker:
    """Through the C library, without the interpreter lock, and through Python."""
    chunks = [0] * 1000
    while True:
        for _ in range(100):
            place = draw.randrange(len(chunks))
            LIBC.free(chunks[place])
            chunks[place] = LIBC.malloc(draw.randrange(1, 200_000 if place < 20 else 5_000))
        [bytearray(draw.randrange(200_000)) for _ in range(5)]
        nap(draw)
        yield


def load_modules(draw: random.Random) -> Worker:
    while True:
        name = draw.choice(OURS)
        module = importlib.import_module(name)
        if draw.random() < 0.5:
            importlib.reload(module)
        else:
            sys.modules.pop(name, None)
        nap(draw)
        yield


def fork(draw: random.Random) -> Worker:
    """The children import, start a thread and allocate before they end."""
    while True:
        pid = os.fork()
        if pid == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            be_child(draw.choice(CHILDS))
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == CHILDS_CODE, status
        nap(draw)
        yield


def be_child(name: str) -> None:
    code = 1
    try:
        importlib.import_module(name)
        thread = threading.Thread(target=bytearray, args=(100_000,))
        thread.start()
        thread.join()
        gc.collect(0)
        code = CHILDS_CODE
    finally:
        os._exit(code)


def run_commands(draw: random.Random) -> Worker:
    while True:
        done = subprocess.run(["echo", "word"], capture_output=True, check=True)
        assert done.stdout == b"word\n"
        nap(draw)
        yield


def collect(draw: random.Random) -> Worker:
    while True:
        for _ in range(300):
            cycle: list[object] = []
            cycle.append(cycle)
        gc.collect(2 if draw.random() < 0.02 else 1)
        nap(draw)
        yield


def come_and_go(draw: random.Random) -> Worker:
    while True:
        thread = threading.Thread(target=nap, args=(draw,))
        thread.start()
        thread.join()
        yield


def sleep(draw: random.Random) -> Worker:
    while True:
        nap(draw, 0.05)
        yield


def wait_for_locks(draw: random.Random) -> Worker:
    """Another thread answers, through a queue and an event."""
    asked: queue.Queue[threading.Event] = queue.Queue()

    def answer() -> None:
        while True:
            asked.get().set()

    threading.Thread(target=answer, daemon=True).start()
    while True:
        event = threading.Event()
        asked.put(event)
        event.wait()
        nap(draw)
        yield


def talk(draw: random.Random) -> Worker:
    """No byte between two threads is lost, doubled or changed."""
    ours, theirs = socket.socketpair()

    def echo() -> None:
        while data := theirs.recv(4096):
            theirs.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    while True:
        data = draw.randbytes(draw.randrange(1, 4096))
        ours.sendall(data)
        answer = b""
        while len(answer) < len(data):
            answer += ours.recv(4096)
        assert answer == data
        nap(draw)
        yield


def signal_itself(draw: random.Random) -> Worker:
    while True:
        os.kill(os.getpid(), signal.SIGUSR1)
        nap(draw, 0.02)
        yield


WORKERS: tuple[Callable[[random.Random], Worker], ...] = (
    *(multiply, infer, allocate, load_modules, fork, run_commands, collect, come_and_go, sleep),
    *(wait_for_locks, talk, signal_itself),
)


def train() -> Iterator[str]:
    """The exact loss of each step; dropout draws from torch's own random numbers."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        yield float(loss.detach()).hex()


def train_bare() -> Iterator[str]:
    weights = [0.0] * 50
    while True:
        for place in range(len(weights)):
            weights[place] += (random.random() - weights[place]) * 0.1
        yield f"{zlib.crc32(json.dumps(weights).encode()):x}"


class Counters:
    """Numbers in a file that others may read at any moment, each written by one thread."""

    def __init__(self, names: tuple[str, ...]) -> None:
        with open("counters", "w+b") as file:
            file.truncate(8 * len(names))
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    def add(self, place: int) -> None:
        self._numbers[place] += 1


def work(worker: Worker, counters: Counters, place: int) -> None:
    for _ in worker:
        counters.add(place)
        if over.is_set():
            return


def end_all(failure: threading.ExceptHookArgs) -> None:
    """A worker has failed."""
    threading.__excepthook__(failure)
    os._exit(99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["torch", "bare"])
    parser.add_argument("--alone", type=int, metavar="N", default=0)
    options = parser.parse_args()
    has_torch = options.kind == "torch"
    random.seed(0)
    steps = train() if has_torch else train_bare()
    if options.alone:
        with open("steps", "w", encoding="ascii") as file:
            for _ in range(options.alone):
                print(next(steps), random.random(), file=file)  # the same as below
        return
    be_busy(steps, has_torch=has_torch)
    print("done", flush=True)


def be_busy(steps: Iterator[str], *, has_torch: bool) -> None:
    faulthandler.enable()
    threading.excepthook = end_all
    sys.setswitchinterval(0.0005)  # the interpreter lock goes round fast, so that all get on
    warnings.simplefilter("ignore", DeprecationWarning)  # about forks beside threads
    missing = set() if has_torch else {infer}
    needed = [*OURS]
    if importlib.util.find_spec("numpy") is None:
        missing.add(multiply)
    else:
        needed.append("numpy.random")
    for name in needed:  # with all that these import, of which children import some
        importlib.import_module(name)
    workers = [worker for worker in WORKERS if worker not in missing]
    names = ("train", "alarms", "signals", *(worker.__name__ for worker in workers))
    counters = Counters(names)
    count_signals(counters)
    first = next(steps)  # imports, too
    threads = [
        threading.Thread(target=work, args=(worker(random.Random(place)), counters, place))
        for place, worker in enumerate(workers, start=names.index("signals") + 1)
    ]
    for thread in threads:
        thread.start()
    print("ready", *names, flush=True)
    kept = array.array("d")  # grows by itself, as records of users do
    with open("steps", "w", encoding="ascii") as file:
        while not over.is_set():
            print(first or next(steps), number := random.random(), file=file)
            first = ""
            kept.append(number)
            counters.add(0)
            if len(kept) % 10 == 0:
                time.sleep(0.001)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for thread in threads:
        thread.join()


def count_signals(counters: Counters) -> None:
    """Handle signals that come all the time, and the one that ends it all."""

    def count(number: int, frame: FrameType | None) -> None:
        counters.add(1 if number == signal.SIGALRM else 2)

    signal.signal(signal.SIGALRM, count)
    signal.signal(signal.SIGUSR1, count)
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    signal.setitimer(signal.ITIMER_REAL, ALARM_S, ALARM_S)


if __name__ == "__main__":
    main()
