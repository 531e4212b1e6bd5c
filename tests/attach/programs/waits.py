"""Prints `ready` and the names of its threads, each of which makes one call after the other.

The calls are waits in which a thread is borrowed. Each thread checks what its call gave back and
that no signal is blocked in it, and counts in the file `counters`. Whatever is not as always is
printed, and ends the program with exit code 1.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import queue
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
SHORT_S = 0.02
LIFETIME_S = 7200


class Timespec(ctypes.Structure):
    """``struct timespec``."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def c_sleep() -> bool:
    """A sleep that a signal would end."""
    return bool(LIBC.nanosleep(ctypes.byref(Timespec(0, int(SHORT_S * 1e9))), None) == 0)


def c_poll() -> bool:
    """A wait that a signal would end."""
    return bool(LIBC.poll(None, 0, int(SHORT_S * 1e3)) == 0)


def py_sleep() -> bool:
    """A sleep that is not to be cut short."""
    began = time.monotonic()
    time.sleep(SHORT_S)
    return time.monotonic() - began >= SHORT_S


def floats() -> bool:
    """A sum that a changed vector register would change."""
    total = 0.0
    for number in range(1, 20_000):
        total += 1.0 / number
        if number % 1000 == 0:
            time.sleep(0.001)
    return repr(total) == "10.48067821722932"


def event() -> bool:
    """A lock with a time limit."""
    return not threading.Event().wait(SHORT_S)


def get() -> bool:
    """A condition with a time limit."""
    try:
        queue.SimpleQueue[int]().get(timeout=SHORT_S)
    except queue.Empty:
        return True
    return False


def epoll() -> bool:
    """Nothing, after the time is up."""
    with select.epoll() as ready:
        return ready.poll(SHORT_S) == []


def _ping_pong() -> Callable[[], bool]:
    """A pipe that another thread writes to."""
    reader, writer = os.pipe()

    def write() -> None:
        while True:
            time.sleep(SHORT_S)
            os.write(writer, b"word")

    threading.Thread(target=write, daemon=True).start()
    return lambda: os.read(reader, 4) == b"word"


def _file_lock() -> Callable[[], bool]:
    """A file lock that another thread gives back."""
    path = Path("lock")
    path.touch()
    mine, theirs = (os.open(path, os.O_RDWR) for _ in range(2))

    def hold() -> None:
        while True:
            fcntl.flock(theirs, fcntl.LOCK_EX)
            time.sleep(SHORT_S)
            fcntl.flock(theirs, fcntl.LOCK_UN)
            time.sleep(SHORT_S / 10)

    threading.Thread(target=hold, daemon=True).start()

    def take() -> bool:
        fcntl.flock(mine, fcntl.LOCK_EX)
        fcntl.flock(mine, fcntl.LOCK_UN)
        return True

    return take


def _join() -> Callable[[], bool]:
    """The end of a thread."""

    def wait() -> bool:
        thread = threading.Thread(target=time.sleep, args=(SHORT_S,))
        thread.start()
        thread.join()
        return not thread.is_alive()

    return wait


CALLS = {
    "py_sleep": py_sleep,
    "c_sleep": c_sleep,
    "c_poll": c_poll,
    "floats": floats,
    "event": event,
    "get": get,
    "epoll": epoll,
    "pipe": _ping_pong(),
    "flock": _file_lock(),
    "join": _join(),
}


def work(index: int, name: str, counters: mmap.mmap) -> None:
    """Make one call again and again."""
    count, call = 0, CALLS[name]
    while True:
        is_right = call()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        if not is_right or blocked:
            print(f"wrong: {name} gave {is_right}, {blocked} are blocked", flush=True)
            os._exit(1)
        count += 1
        struct.pack_into("=Q", counters, 8 * index, count)


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)  # should nobody end it
    with Path("counters").open("w+b") as file:
        file.truncate(8 * len(CALLS))
        shared = mmap.mmap(file.fileno(), 8 * len(CALLS))
    for index, name in enumerate(CALLS):
        if index:
            threading.Thread(target=work, args=(index, name, shared), daemon=True).start()
    print("ready", *CALLS, flush=True)
    work(0, next(iter(CALLS)), shared)
    sys.exit("a thread ended")
