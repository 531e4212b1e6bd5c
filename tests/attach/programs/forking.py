"""Prints `ready` and forks in several threads, as fast as it can, for a quarter of an hour.

Each child looks for an import that another thread has left unfinished in it, which it would wait
for for ever, and some import what an agent imports. The file `counters` holds how many children
ended well, how many found an unfinished import, and how many hung. Imports next to nothing itself.
"""

from __future__ import annotations

import _thread
import mmap
import os
import signal
import struct
import sys
import time

THREADS = 3
EACH = 50
"""So many children only look for each that imports."""
LONGEST_S = 60
LIFETIME_S = 900
GOOD, UNFINISHED = 7, 8
IMPORTED = ("threading", "logging", "json", "traceback", "contextlib", "concurrent.futures.thread")


def unfinished() -> list[str]:
    """What another thread was importing when this child was born."""
    own = _thread.get_ident()
    found = []
    for name, lock in list(sys.modules["_frozen_importlib"]._module_locks.items()):
        owner = getattr(lock(), "owner", None)
        if owner is not None and owner != own:
            found.append(name)
    return found


def be_child(number: int) -> None:
    code = 1
    try:
        signal.alarm(LONGEST_S)
        names = unfinished()
        if names:
            os.write(2, f"unfinished: {names}\n".encode())
            code = UNFINISHED
        else:
            if number % EACH == 0:
                for name in IMPORTED:
                    __import__(name)
            code = GOOD
    finally:
        os._exit(code)


def fork_all_the_time(shared: mmap.mmap, index: int) -> None:
    good = bad = hung = number = 0
    while True:
        number += 1
        pid = os.fork()
        if pid == 0:
            be_child(number)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        good += code == GOOD
        bad += code == UNFINISHED
        hung += code == -signal.SIGALRM
        if code not in (GOOD, UNFINISHED, -signal.SIGALRM):
            os.write(2, f"a child ended with {code}\n".encode())
        struct.pack_into("=3Q", shared, 24 * index, good, bad, hung)


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)  # should nobody end it
    size = 24 * THREADS
    fd = os.open("counters", os.O_RDWR | os.O_CREAT, 0o600)
    os.truncate(fd, size)
    shared = mmap.mmap(fd, size)
    for index in range(THREADS):
        _thread.start_new_thread(fork_all_the_time, (shared, index))
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
