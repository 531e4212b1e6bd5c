"""Prints `ready`, makes the call its argument names, and prints what came of it, again and again.

The calls are those in which a thread is borrowed: what they give back must be as if nobody had.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable

LIBC = ctypes.CDLL(None)


def c_sleep() -> object:
    """The seconds that were not slept: 0 unless a signal ended the sleep."""
    return LIBC.sleep(1)


def py_sleep() -> object:
    """Whether the sleep was not cut short."""
    began = time.monotonic()
    time.sleep(0.5)
    return time.monotonic() - began >= 0.5


def read() -> object:
    """What a child has written into a pipe."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        time.sleep(0.3)
        os.write(writer, b"word")
        os._exit(0)
    os.close(writer)
    data = os.read(reader, 100)
    os.close(reader)
    _, status = os.wait()
    return data, status


def poll() -> object:
    """Nothing, after the time is up."""
    return select.select([], [], [], 0.3)


def epoll() -> object:
    """0 events after the time is up; -1 if the wait was ended early."""
    ready = select.epoll()
    count = LIBC.epoll_wait(ready.fileno(), ctypes.create_string_buffer(64), 1, 300)
    ready.close()
    return count


def floats() -> object:
    """A sum that a changed register would change."""
    total = 0.0
    for number in range(1, 20_000):
        total += 1.0 / number
        if number % 1000 == 0:
            time.sleep(0.001)
    return total


def signals() -> object:
    """The number of signals handled so far."""
    time.sleep(0.01)
    return handled


handled = 0


def _count(number: int, frame: object) -> None:
    global handled  # noqa: PLW0603 - as handlers count
    handled += 1


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _count)
    calls: dict[str, Callable[[], object]] = {
        call.__name__: call for call in (c_sleep, py_sleep, read, poll, epoll, floats, signals)
    }
    call = calls[sys.argv[1]]
    print("ready", flush=True)
    while True:
        print(repr(call()), flush=True)
