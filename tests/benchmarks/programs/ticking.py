"""Trains, or hangs in a lock after two steps, while a thread of its own notes when it stood still.

That thread does nothing but read the clock; whenever more than `NOTED_NS` has passed since it last
did, it writes the moment and the gap into the file that is named. So it notes whatever keeps it
from running: the interpreter lock, the scheduler, and those who stop threads.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
import time

NOTED_NS = 20_000
ENTRIES = 1 << 16


def tick(path: str) -> None:
    """Note gaps, for ever; the first number in the file says how many there were."""
    with open(path, "w+b") as file:
        file.truncate(8 + 16 * ENTRIES)
        view = mmap.mmap(file.fileno(), 0)
    clock, pack = time.perf_counter_ns, struct.pack_into
    written, last = 0, clock()
    while True:
        now = clock()
        if now - last > NOTED_NS:
            pack("=QQ", view, 8 + 16 * (written % ENTRIES), now, now - last)
            written += 1
            pack("=Q", view, 0, written)
        last = now


def main(mode: str, path: str, *, agent: bool) -> None:
    """Be busy or hung."""
    from tests.benchmarks.programs.gpt import make_stepper

    if agent:
        from probing.agent import lifecycle
        from probing.settings import Settings

        lifecycle.start(Settings.from_env(os.environ))
    step = make_stepper(workers=0)
    for _ in range(2):
        step()
    threading.Thread(target=tick, args=(path,), daemon=True).start()
    print("ready", flush=True)
    if mode == "hung":
        lock = threading.Lock()
        with lock:
            lock.acquire()
    while True:
        step()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
