"""Prints what there is for a borrowed thread to do, and sleeps.

The addresses are those of functions as `Errand.function`: `busy` computes for some time with a
lock held, as the allocator would, and prints a line before and behind; `asleep` waits for one
that it never gets; `brief` is through at once.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time

LIFETIME_S = 600
Function = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p for _ in range(4)))
BUSY_S = 1.5
NOTHING_STARTED = 7
held, taken = threading.Lock(), threading.Lock()


@Function
def busy(*_: object) -> int:
    print("begun", flush=True)
    with held:
        end = time.monotonic() + BUSY_S
        while time.monotonic() < end:
            pass
    print("through", flush=True)
    return NOTHING_STARTED


@Function
def asleep(*_: object) -> int:
    taken.acquire()
    return NOTHING_STARTED


@Function
def brief(*_: object) -> int:
    return NOTHING_STARTED


def main() -> None:
    taken.acquire()
    for function in (busy, asleep, brief):
        print(ctypes.cast(function, ctypes.c_void_p).value)
    print("ready", flush=True)
    time.sleep(LIFETIME_S)


if __name__ == "__main__":
    sys.setswitchinterval(LIFETIME_S)
    main()
